#include "gui/window.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <system_error>

#include "gui/drawn.h"
#include "gui/keys_overlay.h"
#include "gui/recent_files.h"
#include "gui/tab_strip.h"
#include "gui/views/registry.h"

namespace nanscope::gui {
namespace {

constexpr float kTabHeight = 36;
constexpr double kMomentSeconds = 2;
constexpr std::size_t kFront = 0;  ///< the first two views have places of their own
constexpr std::size_t kCascade = 1;
constexpr ImGuiWindowFlags kBareWindow = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                         ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus |
                                         ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_NoBackground;

/// A typed place, found in the recording.
struct FoundPlace final : Prepared {
  Selection selection;
};

/// Recordings and dumps that were opened before.
struct FoundFiles final : Prepared {
  std::vector<std::filesystem::path> files;
};

Result<PreparedPtr> find_recent(RunFacts& facts) {
  auto answer = std::make_shared<FoundFiles>();
  std::error_code ignored;
  for (std::filesystem::path& file : recent_files(recent_files_path())) {
    if (!std::filesystem::equivalent(file, facts.path(), ignored)) answer->files.push_back(std::move(file));
  }
  return answer;
}

Result<PreparedPtr> find_place(RunFacts& facts, const std::string& text) {
  Result<Selection> found = select(facts.view(), text);
  if (!found) return tl::unexpected(found.error());
  auto answer = std::make_shared<FoundPlace>();
  answer->selection = std::move(*found);
  return answer;
}

/// Instead of everything else.
void draw_too_small(const Look& look, Area window) {
  fill(window, look.theme.panel);
  const std::string words = fmt::format(
      "This window is {:.0f} x {:.0f} pixels large: nanscope needs at least {:.0f} x {:.0f} to be read. One view "
      "alone, by --view, needs less.",
      window.width, window.height, kLeastWindowWidth * look.scale, kLeastWindowHeight * look.scale);
  const Area inner = window.inset(look.px(20));
  const std::vector<std::string> lines = wrap(look.fonts.text, words, inner.width);
  const float pitch = look.px(20);
  float y = inner.y + std::max((inner.height - pitch * static_cast<float>(lines.size())) / 2, 0.0F);
  for (const std::string& said : lines) {
    label(look.fonts.text, {inner.x, y, inner.width, pitch}, look.theme.text, said, 0.5F);
    y += pitch;
  }
}

}  // namespace

Window::Window(OpenedRun run, WindowSetup setup)
    : setup_(std::move(setup)),
      run_file_(run.path),
      pins_(run.path),
      top_bar_(run.path.filename().string()),
      exporter_(run.path),
      beside_(run.path),
      store_(std::move(run)) {
  shares_ = setup_.shares;
  dragged_to_ = shares_;
  navigator_.choose(setup_.start);
  const std::vector<std::string> names = setup_.view.empty() ? view_names() : std::vector<std::string>{setup_.view};
  for (const std::string& name : names) panes_.emplace_back(make_view(name));
  for (std::size_t i = kCascade + 1; i < panes_.size(); ++i) {
    if (panes_[i].view().name() == setup_.tab) tab_ = tabs_.size();
    tabs_.push_back(i);
  }
  places_.resize(panes_.size());
  if (const std::optional<Error> problem = pins_.take_problem()) say_error(problem->message);
  ask_map(Urgency::now);
  if (!setup_.beside.empty()) open_beside(setup_.beside);
  if (!setup_.check.model.empty()) beside_.check(store_, setup_.check);
  if (!setup_.unattended) store_.ask("recent", find_recent);
  store_.ask(
      "diagnosis", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.story(); }, Urgency::later);
}

void Window::ask_map(Urgency urgency) {
  store_.ask(
      "map", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.map(); }, urgency);
}

bool Window::settled() const {
  return !store_.activity() && !beside_.running() && !exporter_.busy() && !to_save_ && browser_.settled() &&
         std::all_of(panes_.begin(), panes_.end(), [](const Pane& pane) { return pane.settled(); });
}

void Window::take_answers() {
  for (Answer& answer : store_.poll()) {
    for (Pane& pane : panes_) pane.take(answer);
    if (beside_.take(store_, answer)) {
      const auto first = beside_.errors() ? beside_.errors()->first() : std::nullopt;
      if (first) navigator_.prefer(*first);
      continue;
    }
    const bool typed = top_bar_.take_answer(answer.ticket, answer.result ? "" : answer.result.error().message);
    if (!answer.result) {
      if (!typed) say_error(answer.result.error().message);
    } else if (answer.kind == "map") {
      navigator_.set_map(std::static_pointer_cast<const RunMap>(*answer.result));
      if (!navigator_.map()->exact) ask_map(Urgency::later);
    } else if (answer.kind == "diagnosis") {
      navigator_.set_story(std::static_pointer_cast<const Story>(*answer.result));
    } else if (answer.kind == "place") {
      navigator_.choose(static_cast<const FoundPlace&>(**answer.result).selection);
      message_ = {};
    } else if (answer.kind == "recent") {
      recent_ = static_cast<const FoundFiles&>(**answer.result).files;
    } else if (answer.kind == "markdown") {
      save_diagnosis(answer);
    }
  }
}

void Window::say(std::string message) {
  message_ = {std::move(message), false};
  said_until_ = ImGui::GetTime() + kMomentSeconds;
}

StatusText Window::status() const {
  if (ImGui::GetTime() < said_until_ && !message_.text.empty()) return message_;
  if (!hint_.empty()) return {hint_, false};
  if (!message_.text.empty()) return message_;
  return {fmt::format("Space plays the run, N goes to the next event, 1 to {} choose a view, Ctrl+P finds any command "
                      "or place, ? lists the keys",
                      tabs_.empty() ? "0" : tab_digit(std::min<std::size_t>(tabs_.size(), 10) - 1)),
          false, "Ctrl+P finds any command or place, ? lists the keys"};
}

void Window::go(const std::string& place) {
  top_bar_.stop_waiting();  // the newest search is the one that is answered
  ask_place(place);
}

std::uint64_t Window::ask_place(const std::string& place) {
  return store_.ask("place", [place](RunFacts& facts) { return find_place(facts, place); });
}

bool Window::show_view(std::string_view name) {
  for (std::size_t i = 0; i < tabs_.size(); ++i) {
    if (panes_[tabs_[i]].view().name() == name) tab_ = i;
  }
  return shows(name);
}

bool Window::shows(std::string_view name) const {
  if (!tabs_.empty() && panes_[tabs_[tab_]].view().name() == name) return true;
  const std::size_t above = enlarged_ ? 0 : std::min(panes_.size(), kCascade + 1);
  return std::any_of(panes_.begin(), panes_.begin() + static_cast<std::ptrdiff_t>(above),
                     [&](const Pane& pane) { return pane.view().name() == name; });
}

std::optional<Area> Window::where(std::string_view view, const Place& place) const {
  const Pane* pane = pane_of(view);
  return pane != nullptr && shows(view) ? pane->view().where(place) : std::nullopt;
}

std::optional<TableMaker> Window::table(std::string_view view) const {
  const Pane* pane = pane_of(view);
  return pane != nullptr ? pane->table() : std::nullopt;
}

const Pane* Window::pane_of(std::string_view view) const {
  const auto pane =
      std::find_if(panes_.begin(), panes_.end(), [&](const Pane& each) { return each.view().name() == view; });
  return pane != panes_.end() ? &*pane : nullptr;
}

std::filesystem::path Window::beside_file() const {
  return beside_.run() && !beside_.run()->scratch ? beside_.run()->path : std::filesystem::path();
}

ViewContext Window::context() const {
  return {setup_.theme,           setup_.fonts,      setup_.scale,
          navigator_.selection(), navigator_.map(),  navigator_.story(),
          navigator_.playhead(),  setup_.unattended, beside_.run(),
          beside_.difference(),   setup_.printed,    &pins_,
          beside_.errors(),       setup_.numbers,    !scenarios::looks_like_recording(run_file_.string())};
}

void Window::draw_pane(Pane& pane, Area area, bool titled) {
  places_[static_cast<std::size_t>(&pane - panes_.data())] = area;
  ImGui::SetCursorScreenPos(area.min());
  // Not the bare name: the list of requests is a child of the same window.
  ImGui::BeginChild(fmt::format("pane {}", pane.view().name()).c_str(), {area.width, area.height}, false,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  ImGui::PushFont(setup_.fonts.text);
  if (setup_.view.empty()) fill(area, setup_.theme.panel);  // alone it stands on the platform's ground
  // What a view chooses takes effect after it is drawn: its context refers to the current selection.
  std::optional<Selection> chosen;
  std::optional<std::size_t> sought;
  std::function<Status(Pins&)> edited;
  const ViewActions actions{[&chosen](Selection selection) { chosen = std::move(selection); },
                            [this](std::string text) { hint_ = std::move(text); },
                            [this](std::vector<std::string> settings) { beside_.try_settings(std::move(settings)); },
                            [&edited](const Place& place) { edited = [place](Pins& pins) { return pins.add(place); }; },
                            [&edited](std::size_t pin) { edited = [pin](Pins& pins) { return pins.remove(pin); }; },
                            [&edited](std::size_t pin, const std::string& note) {
                              edited = [pin, note](Pins& pins) { return pins.note(pin, note); };
                            },
                            [this](const std::filesystem::path& model) {
                              if (model.empty()) return browse(Browsing::model);
                              open_beside(model);
                            },
                            [&sought](std::size_t op) { sought = op; },
                            [this, &pane](MenuTarget target) { open_menu(std::move(target), &pane); }};
  pane.draw(store_, context(), actions, area, titled);
  ImGui::PopFont();
  ImGui::EndChild();
  if (chosen) navigator_.choose(std::move(*chosen));
  if (sought) {
    navigator_.play(false);
    navigator_.seek(*sought);
  }
  if (edited) {
    if (const Status done = edited(pins_); !done) say_error(done.error().message);
  }
}

ImVec2 Window::splitter(const char* id, Area area) const {
  if (area.width <= 0) return {0, 0};
  const bool upright = area.height > area.width;
  ImGui::SetCursorScreenPos(area.min());
  ImGui::InvisibleButton(id, {area.width, area.height});
  tell_item(area, fmt::format("{} splitter", id));
  if (ImGui::IsItemHovered() || ImGui::IsItemActive()) {
    ImGui::SetMouseCursor(upright ? ImGuiMouseCursor_ResizeEW : ImGuiMouseCursor_ResizeNS);
    const float thick = std::min(area.width, area.height);
    fill(upright ? area.inset(thick / 3, 0) : area.inset(0, thick / 3), setup_.theme.accent, thick / 6);
  }
  return ImGui::IsItemActive() ? ImGui::GetIO().MouseDelta : ImVec2(0, 0);
}

void Window::draw_splitters(const WindowAreas& areas, Area window) {
  const Shares before = shares_;
  shares_.left += splitter("left", areas.left_gap).x / window.width;
  shares_.right -= splitter("right", areas.right_gap).x / window.width;
  shares_.upper += splitter("middle", areas.middle_gap).y / (areas.status.y - areas.top_bar.bottom());
  if (shares_ != before) dragged_to_ = shares_;
}

void Window::draw_lower(const Look& look, Area area) {
  const float height = look.px(kTabHeight);
  std::vector<std::string_view> titles;
  for (const std::size_t pane : tabs_) titles.push_back(panes_[pane].view().title());
  const std::string_view caption = panes_[tabs_[tab_]].view().caption();
  const TabClicks clicks = draw_tabs(look, titles, tab_, enlarged_, caption, {area.x, area.y, area.width, height});
  if (clicks.chosen) tab_ = *clicks.chosen;
  if (clicks.enlarge) enlarged_ = !enlarged_;
  draw_pane(panes_[tabs_[tab_]], {area.x, area.y + height, area.width, area.height - height}, false);
}

void Window::layout(Platform& platform, Area area) {
  const Look look{setup_.theme, setup_.fonts, setup_.scale};
  const bool enlarged = enlarged_;
  const float beside = beside_.empty() ? 0 : Beside::height(look.scale);
  WindowAreas areas =
      lay_out({area.x, area.y + beside, area.width, area.height - beside}, shares_, setup_.scale, enlarged);
  areas.top_bar.y = area.y;
  if (!beside_.empty()) {
    const BesideClicks clicks = beside_.draw(look, store_, {area.x, areas.top_bar.bottom(), area.width, beside});
    if (clicks.go) navigator_.choose(*clicks.go);
  }
  top_bar_.draw(look, navigator_, areas.top_bar,
                {[this](const std::string& text) { return ask_place(text); },
                 [&platform](const std::string& text) { platform.set_clipboard(text); }, [this] { open_palette({}); },
                 [this] { leave_ = true; }});
  if (areas.left.width > 0) {
    draw_requests(look, navigator_, areas.left,
                  {[this](std::string text) { hint_ = std::move(text); },
                   [this](MenuTarget target) { open_menu(std::move(target), nullptr); }});
  }
  if (!enlarged) {
    draw_pane(panes_[kFront], areas.upper, true);
    draw_pane(panes_[kCascade], areas.right, true);
  }
  draw_lower(look, areas.lower);
  draw_splitters(areas, area);
  draw_status(look, status(), store_.activity(), navigator_.map().get(), areas.status);
}

void Window::frame(Platform& platform) {
  beside_.update(store_);
  take_answers();
  if (std::optional<StatusText> words = beside_.take_words()) message_ = std::move(*words);
  take_saved();
  places_.assign(panes_.size(), {});
  covered_ = palette_.is_open() || menu_.is_open() || settings_.is_open() || browser_.is_open() || listing_keys_;
  navigator_.advance(static_cast<double>(ImGui::GetIO().DeltaTime));
  keys(platform);
  const Extent size = platform.size();
  const Area area{0, 0, static_cast<float>(size.width), static_cast<float>(size.height)};
  platform.set_ground(setup_.view.empty() ? setup_.theme.background : setup_.theme.panel);
  ImGui::SetNextWindowPos(area.min());
  ImGui::SetNextWindowSize({area.width, area.height});
  ImGui::Begin("nanscope", nullptr, kBareWindow);
  ImGui::PushFont(setup_.fonts.text);
  hint_.clear();
  const Look look{setup_.theme, setup_.fonts, setup_.scale};
  if (setup_.view.empty() && too_small(area, setup_.scale)) {
    draw_too_small(look, area);
  } else if (setup_.view.empty()) {
    layout(platform, area);
  } else {
    draw_pane(panes_[0], area, true);
  }
  ImGui::PopFont();
  ImGui::End();
  if (!undo_) undo_.emplace(arrangement());
  if (!ImGui::IsAnyMouseDown()) undo_->note(arrangement());
  if (const std::optional<MenuItem> chosen = menu_.draw(look, area)) follow(*chosen, platform);
  if (const auto wanted = settings_.draw(look, area, preferences())) prefer(*wanted);
  if (listing_keys_ && draw_keys_overlay(look, area, key_rows(commands()))) listing_keys_ = false;
  if (const std::optional<PaletteItem> chosen = palette_.draw(look, area)) follow(*chosen, platform);
  const std::optional<std::filesystem::path> chosen = browser_.draw(look, area);
  if (chosen && browsing_ != Browsing::run) return open_beside(*chosen);
  if (chosen) choice_ = chosen;
}

}  // namespace nanscope::gui
