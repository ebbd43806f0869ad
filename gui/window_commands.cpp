#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "gui/export/tables.h"
#include "gui/keys_overlay.h"
#include "gui/place_link.h"
#include "gui/platform/keys.h"
#include "gui/recent_files.h"
#include "gui/window.h"
#include "scenarios/analysis.h"
#include "scenarios/report/run_json.h"

/// What keys and the palette do.
namespace nanscope::gui {
namespace {

bool pressed(const Chord& chord, bool repeats) {
  const ImGuiIO& io = ImGui::GetIO();
  if (chord.typed != 0) {
    const ImVector<ImWchar>& typed = io.InputQueueCharacters;
    return std::find(typed.begin(), typed.end(), static_cast<ImWchar>(chord.typed)) != typed.end();
  }
  return chord.control == io.KeyCtrl && chord.shift == io.KeyShift && chord.alt == io.KeyAlt &&
         key_pressed(chord.key, repeats);
}

bool pressed(const Command& command) {
  return std::any_of(command.chords.begin(), command.chords.end(),
                     [&](const Chord& chord) { return pressed(chord, command.repeats); });
}

constexpr std::size_t kMostSaid = 120;  ///< bytes of what was copied

/// The diagnosis as the command would print it.
struct DiagnosisText final : Prepared {
  std::string markdown;
};

Result<PreparedPtr> write_diagnosis(RunFacts& facts) {
  const std::string name = facts.path().filename().string();
  const Result<scenarios::Analysis> analysis = scenarios::analyse(facts.run(), facts.diagnosis_options());
  if (!analysis) return tl::unexpected(analysis.error());
  auto text = std::make_shared<DiagnosisText>();
  text->markdown = report::run_markdown(*analysis, {"diagnose", {}, name, false, {}});
  return text;
}

/// What of a picture lies in an area of the window.
Picture cut_out(const Picture& whole, Area area) {
  const int left = std::clamp(static_cast<int>(area.x), 0, whole.size.width);
  const int top = std::clamp(static_cast<int>(area.y), 0, whole.size.height);
  const int right = std::clamp(static_cast<int>(area.right()), left, whole.size.width);
  const int bottom = std::clamp(static_cast<int>(area.bottom()), top, whole.size.height);
  Picture part{{right - left, bottom - top}, {}};
  for (int y = top; y < bottom; ++y) {
    const auto begin = whole.rgba.begin() + 4 * (static_cast<std::ptrdiff_t>(y) * whole.size.width + left);
    part.rgba.insert(part.rgba.end(), begin, begin + 4 * static_cast<std::ptrdiff_t>(part.size.width));
  }
  return part;
}

}  // namespace

std::vector<Command> Window::commands() const {
  CommandViews views;
  for (const Pane& pane : panes_) views.titles.emplace_back(pane.view().title());
  views.tabs = tabs_;
  views.shown = static_cast<std::size_t>(&shown_pane() - panes_.data());
  views.dark = setup_.theme.dark;
  views.vision = setup_.theme.vision;
  views.beside = beside_.run() != nullptr;
  return all_commands(views);
}

void Window::keys(Platform& platform) {
  if (menu_.is_open()) return;
  if (settings_.is_open() && !ImGui::GetIO().KeyCtrl) return;  // the size of text can be tried
  const std::vector<Command> all = commands();
  // First: what is typed in the same frame is meant for the palette.
  const auto finds =
      std::find_if(all.begin(), all.end(), [](const Command& one) { return one.action == Action::palette; });
  if (finds != all.end() && pressed(*finds)) return run(*finds, platform);
  if (ImGui::GetIO().WantTextInput || palette_.is_open() || browser_.is_open()) return;
  for (const Command& command : all) {
    if (pressed(command)) run(command, platform);
  }
}

void Window::show_pane(std::size_t pane) {
  const auto tab = std::find(tabs_.begin(), tabs_.end(), pane);
  if (tab != tabs_.end()) tab_ = static_cast<std::size_t>(tab - tabs_.begin());
}

void Window::use_theme(Theme theme) {
  setup_.theme = std::move(theme);
  apply_style(setup_.theme, setup_.scale);
}

void Window::zoom(int zoom) { wanted_zoom_ = std::clamp(zoom, kLeastZoom, kMostZoom); }

void Window::use_zoom(int zoom, float scale, const Fonts& fonts) {
  setup_.zoom = zoom;
  setup_.scale = scale;
  setup_.fonts = fonts;
  say(fmt::format("text size {} %: Ctrl+0 is 100 %", zoom));
}

Preferences Window::preferences() const {
  return {setup_.theme.dark, setup_.theme.vision, setup_.zoom, setup_.numbers};
}

void Window::prefer(const Preferences& wanted) {
  const Preferences now = preferences();
  if (wanted.dark != now.dark || wanted.vision != now.vision) {
    use_theme(wanted.dark ? dark_theme(wanted.vision) : light_theme(wanted.vision));
  }
  if (wanted.zoom != now.zoom) zoom(wanted.zoom);
  setup_.numbers = wanted.numbers;
}

void Window::open_palette(std::string typed) {
  palette_.open(palette_items(commands(), navigator_.map().get(), navigator_.story().get(),
                              navigator_.selection().place, recent_),
                std::move(typed));
}

void Window::browse(Browsing what) {
  browsing_ = what;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(run_file_, error).parent_path();
  switch (what) {
    case Browsing::run:
      return browser_.open("Open a recording or a dump", "Open this folder as a dump", folder, recent_);
    case Browsing::beside:
      return browser_.open("Show a recording beside", "Show this folder beside", folder, recent_);
    case Browsing::model:
      return browser_.open("Choose the checkpoint that was served", "Use this folder", folder, recent_);
  }
}

void Window::run(const Command& command, Platform& platform) {
  switch (command.action) {
    case Action::none:
      return;
    case Action::play:
      return navigator_.play(!navigator_.playing());
    case Action::step_back:
      return navigator_.step(-1);
    case Action::step_forward:
      return navigator_.step(1);
    case Action::next_event:
      return navigator_.next_event();
    case Action::last_event:
      return navigator_.last_event();
    case Action::slower:
    case Action::faster:
      return change_speed(command.action == Action::faster ? 1 : -1);
    case Action::next_bad:
    case Action::last_bad:
      return go_to_bad(command.action == Action::next_bad);
    case Action::origin:
      return navigator_.go_to_origin();
    case Action::first_difference:
      return go_to_difference();
    case Action::back:
      return navigator_.back();
    case Action::forward:
      return navigator_.forward();
    case Action::type_place:
      return top_bar_.focus_place();
    case Action::copy_place:
      return platform.set_clipboard(to_string(navigator_.selection().place));
    case Action::copy_link:
      platform.set_clipboard(link_to(run_file_, navigator_.selection().place));
      return say("copied: " + link_to(run_file_, navigator_.selection().place));
    case Action::pin:
      return pin(navigator_.selection().place);
    case Action::undo:
      return arrange(undo_->undo());
    case Action::redo:
      return arrange(undo_->redo());
    case Action::paste_place:
      return go(platform.clipboard());
    case Action::show_view:
      return show_pane(command.view);
    case Action::enlarge:
      enlarged_ = !enlarged_ && !tabs_.empty();
      return;
    case Action::switch_theme:
      return use_theme(setup_.theme.dark ? light_theme(setup_.theme.vision) : dark_theme(setup_.theme.vision));
    case Action::zoom_in:
      return zoom(setup_.zoom + kZoomStep);
    case Action::zoom_out:
      return zoom(setup_.zoom - kZoomStep);
    case Action::zoom_reset:
      return zoom(100);
    case Action::settings:
      return settings_.open();
    case Action::choose_palette:
      return use_theme(setup_.theme.dark ? dark_theme(command.vision) : light_theme(command.vision));
    case Action::save_picture:
    case Action::save_table:
      return ask_to_save(command);
    case Action::save_diagnosis:
      store_.ask("markdown", write_diagnosis);
      return;
    case Action::open:
      return browse(Browsing::run);
    case Action::start_screen:
      leave_ = true;
      return;
    case Action::open_beside:
      return browse(Browsing::beside);
    case Action::remove_beside:
      return beside_.remove(store_);
    case Action::palette:
      return palette_.is_open() ? palette_.close() : open_palette({});
    case Action::list_keys:
      listing_keys_ = !listing_keys_;
      return;
    case Action::close_topmost:
      enlarged_ = enlarged_ && listing_keys_;
      listing_keys_ = false;
      return;
  }
}

void Window::change_speed(int doublings) {
  navigator_.change_speed(doublings);
  const double speed = navigator_.speed();
  say(fmt::format("speed {}: Space plays the whole run in {:g} s", speed_text(speed), Navigator::kPlaySeconds / speed));
}

void Window::pin(const Place& place) {
  if (place.op.empty()) return say("nothing is selected that could be pinned");
  const std::optional<std::size_t> pinned = pins_.find(place);
  const Status done = pinned ? pins_.remove(*pinned) : pins_.add(place);
  if (!done) return say_error(done.error().message);
  say(fmt::format("{} {}: Pins shows what is kept, over the steps", pinned ? "taken away" : "pinned",
                  to_string(place)));
}

void Window::go_to_bad(bool forward) {
  const std::optional<Selection> found = shown_pane().view().next_bad(navigator_.selection(), forward);
  if (found) return navigator_.choose(*found);
  if (shows("tensor")) return say("this tensor has no NaN, no Inf and nothing clipped");
  show_view("tensor");
  say(fmt::format("the elements of a tensor: {} goes through those that are bad", forward ? "B" : "Shift+B"));
}

void Window::go_to_difference() {
  const auto divergence = beside_.divergence();
  if (divergence && divergence->first) return navigator_.choose(*divergence->first);
  message_ = {!beside_.run() ? "no run stands beside: open one from What if, or with Ctrl+P"
              : divergence   ? divergence->words
                             : "the runs are still being compared",
              false};
}

void Window::follow(const PaletteItem& item, Platform& platform) {
  if (const auto* command = std::get_if<Command>(&item.target)) return run(*command, platform);
  if (const auto* selection = std::get_if<Selection>(&item.target)) return navigator_.choose(*selection);
  if (const auto* place = std::get_if<TypedPlace>(&item.target)) return go(place->text);
  if (const auto* beside = std::get_if<BesideFile>(&item.target)) return open_beside(beside->path);
  choice_ = std::get<std::filesystem::path>(item.target);
}

void Window::open_menu(MenuTarget target, const Pane* pane) {
  const Place& place = target.selection.place;
  MenuSetting setting{run_file_, pins_.find(place).has_value(), beside_.run() != nullptr};
  setting.has_table = pane != nullptr && pane->table().has_value();
  std::vector<MenuItem> items = menu_items(target, setting);
  menu_.open(std::move(target), std::move(items), pane != nullptr ? std::string(pane->view().name()) : std::string());
}

void Window::follow(const MenuItem& item, Platform& platform) {
  const Selection& selection = menu_.target().selection;
  switch (item.act) {
    case MenuAct::copy:
      platform.set_clipboard(item.text);
      return say("copied: " + (item.text.size() > kMostSaid ? item.text.substr(0, kMostSaid) + "\u2026" : item.text));
    case MenuAct::show:
      navigator_.choose(selection);
      show_view(item.text);
      return;
    case MenuAct::pin:
      return pin(selection.place);
    case MenuAct::compare:
      navigator_.choose(selection);
      show_view("tensor");
      if (!beside_.run()) browse(Browsing::beside);
      return;
    case MenuAct::list:
      for (Pane& pane : panes_) pane.view().filter(item.text);
      show_view("tensors");
      return;
    case MenuAct::zoom_token:
      navigator_.choose(selection);
      enlarged_ = false;
      for (Pane& pane : panes_) pane.view().zoom_to_token(selection.place);
      return;
    case MenuAct::save_table:
      if (const Pane* pane = pane_of(menu_.view())) save_table(*pane);
      return;
  }
}

void Window::arrange(std::optional<Arrangement> wanted) {
  if (!wanted) return say("there is nothing to undo or to do again");
  shares_ = wanted->shares;
  dragged_to_ = shares_;
  enlarged_ = wanted->enlarged;
  if (wanted->pins == pins_.all()) return;
  if (const Status done = pins_.replace(std::move(wanted->pins)); !done) say_error(done.error().message);
}

void Window::ask_to_save(const Command& command) {
  const bool below = std::find(tabs_.begin(), tabs_.end(), command.view) != tabs_.end();
  if (below) show_pane(command.view);
  if (!below && command.view < panes_.size()) enlarged_ = false;
  to_save_ = command;
}

void Window::after_frame(Platform& platform) {
  if (!to_save_ || covered_) return;
  const std::size_t view = to_save_->view;
  const bool there = view >= panes_.size() || (places_[view].width > 0 && panes_[view].settled());
  if (!there) return;
  if (to_save_->action == Action::save_table) {
    save_table(panes_[view]);
  } else {
    save_picture(platform, view);
  }
  to_save_.reset();
}

void Window::save_picture(Platform& platform, std::size_t view) {
  const Picture whole = platform.read_pixels();
  const bool one = view < panes_.size();
  exporter_.save(one ? std::string(panes_[view].view().name()) : "window", "png",
                 [picture = one ? cut_out(whole, places_[view]) : whole] { return encode_png(picture); });
}

void Window::save_table(const Pane& pane) {
  std::optional<TableMaker> maker = pane.table();
  if (!maker) {
    message_ = {fmt::format("{} has no table to save", pane.view().title()), true};
    return;
  }
  exporter_.save(std::string(pane.view().name()), "csv",
                 [make = std::move(*maker)] { return bytes_of(to_csv(make())); });
}

void Window::save_diagnosis(const Answer& answer) {
  const auto text = std::dynamic_pointer_cast<const DiagnosisText>(*answer.result);
  if (!text) return;
  exporter_.save("diagnosis", "md", [text] { return bytes_of(text->markdown); });
}

void Window::take_saved() {
  for (const Exporter::Saved& saved : exporter_.poll()) {
    if (saved) {
      message_ = {fmt::format("Saved as {}", saved->string()), false};
    } else {
      say_error(saved.error().message);
    }
  }
}

}  // namespace nanscope::gui
