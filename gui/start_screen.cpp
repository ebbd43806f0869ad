#include "gui/start_screen.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "gui/controls.h"
#include "gui/keys_overlay.h"
#include "gui/marks.h"
#include "gui/platform/keys.h"
#include "gui/recent_files.h"
#include "scenarios/library.h"
#include "scenarios/runner.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr float kScreenMargin = 48;
constexpr float kScreenHead = 112;
constexpr float kLeft = 420;
constexpr float kCard = 58;
constexpr float kDrop = 128;
constexpr float kTip = 460;  ///< width of what is told about a scenario
constexpr int kMostTold = 9;
constexpr ImGuiWindowFlags kBareScreen = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                         ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus |
                                         ImGuiWindowFlags_NoBackground;

using RunJob = Background<fs::path>;

/// The recording lies where the command would put it: beside the user, under the scenario's name.
Result<fs::path> run_one(const fs::path& path, const std::stop_token& stop, const RunJob::Report& report) {
  const Result<scenarios::Scenario> scenario = scenarios::load_scenario(path);
  if (!scenario) return tl::unexpected(scenario.error());
  scenarios::RunnerOptions options;
  options.control.stop = stop;
  options.control.progress = [&report](const Progress& now) {
    report({now.ops, now.expected_ops, fmt::format("request {}", now.request)});
  };
  const Result<scenarios::ScenarioRun> run = scenarios::run_scenario(*scenario, options);
  if (!run) return tl::unexpected(run.error());
  return run->recording;
}

void dashed(Area area, Color color, float dash) {
  for (float x = area.x; x < area.right(); x += 2 * dash) {
    const float end = std::min(x + dash, area.right());
    line({x, area.y}, {end, area.y}, color);
    line({x, area.bottom()}, {end, area.bottom()}, color);
  }
  for (float y = area.y; y < area.bottom(); y += 2 * dash) {
    const float end = std::min(y + dash, area.bottom());
    line({area.x, y}, {area.x, end}, color);
    line({area.right(), y}, {area.right(), end}, color);
  }
}

}  // namespace

StartScreen::StartScreen(const Theme& theme, const Fonts& fonts, float scale, std::string open)
    : theme_(theme),
      fonts_(fonts),
      look_{theme_, fonts_, scale},
      scenarios_(list_scenarios(scenarios::library_folder())),
      found_(find_scenarios(scenarios_, {})),
      recent_(recent_files(recent_files_path())),
      open_(std::move(open)) {}

std::optional<fs::path> StartScreen::take_choice() { return std::exchange(choice_, std::nullopt); }

void StartScreen::say_error(std::string message) {
  error_.clear();
  if (std::exchange(typed_, false)) {
    path_.refuse(std::move(message));
  } else {
    error_ = std::move(message);
  }
}

void StartScreen::take_run() {
  const std::optional<Result<fs::path>> result = job_.take();
  if (!result) return;
  running_.clear();
  if (*result) {
    choice_ = **result;
  } else if (!job_.cancelled()) {
    error_ = result->error().message;
  }
}

void StartScreen::start(const ScenarioCard& card) {
  error_.clear();
  running_ = card.name;
  job_.start([path = card.path](const std::stop_token& stop, const RunJob::Report& report) {
    return run_one(path, stop, report);
  });
}

/// At the right end of the head: the way back to the recording that is open.
void StartScreen::draw_back(Area head) {
  const std::string words = fmt::format("Back to {}", printable(open_));
  const float width = std::min(button_width(look_, words), head.width * 0.5F);
  const Area box{head.right() - width, head.y + (head.height - look_.px(30)) / 2, width, look_.px(30)};
  const bool typing = ImGui::GetIO().WantTextInput || !search_.text.empty();
  const bool covered = browser_.is_open() || listing_keys_;
  const bool key = !typing && !covered && (key_pressed(GLFW_KEY_ESCAPE, false) || key_pressed(GLFW_KEY_HOME, false));
  if (button(look_, "back", words, box, true) || key) back_ = true;
}

void StartScreen::draw_open(Area area) {
  const Theme& theme = look_.theme;
  const Area drop{area.x, area.y, area.width, look_.px(kDrop)};
  fill(drop, theme.panel, look_.px(8));
  dashed(drop.inset(look_.px(1)), theme.muted.alpha(150), look_.px(5));
  const float middle = drop.y + drop.height / 2;
  label(look_.fonts.title, {drop.x, middle - look_.px(24), drop.width, look_.px(24)}, theme.text,
        "Drop a recording or a dump here", 0.5F);
  label(look_.fonts.small, {drop.x, middle, drop.width, look_.px(20)}, theme.muted,
        "a .nanscope file, a file of tensors or a folder of them", 0.5F);
  const float browse = button_width(look_, "Browse");
  const Area field{drop.x, drop.bottom() + look_.px(14), drop.width - browse - look_.px(10), look_.px(26)};
  if (button(look_, "browse", "Browse", {field.right() + look_.px(10), field.y, browse, field.height})) browse_files();
  if (path_.draw(look_, "path", "or type its path, then Enter", look_.fonts.mono, field) && !path_.text.empty()) {
    choice_ = path_.text;
    typed_ = true;
  }
  if (!opening_) return;
  JobProgress shown = *opening_;
  shown.what = "opening " + printable(shown.what);
  const Area bar{drop.x, drop.bottom() + look_.px(44), drop.width, look_.px(44)};
  if (draw_progress(look_, shown, "MiB", cancelled_, bar)) cancel_ = true;
}

void StartScreen::browse_files() {
  std::error_code error;
  browser_.open("Open a recording or a dump", "Open this folder as a dump", fs::current_path(error), recent_);
}

void StartScreen::keys() {
  if (browser_.is_open()) return;
  if (ImGui::GetIO().KeyCtrl && key_pressed(GLFW_KEY_O, false)) browse_files();
  if (key_pressed(GLFW_KEY_F1, false)) listing_keys_ = !listing_keys_;
  if (key_pressed(GLFW_KEY_ESCAPE, false)) listing_keys_ = false;
}

void StartScreen::draw_above(Area window) {
  static const std::vector<KeyRow> kRows = {{"", "Start screen"},
                                            {"Ctrl+O", "browse for a recording or a dump"},
                                            {"Drop", "open a recording or a dump"},
                                            {"Ctrl+F", "search the scenarios"},
                                            {"Esc", "clear the search, go back to the open recording"},
                                            {"F1", "list the keys"}};
  if (listing_keys_ && draw_keys_overlay(look_, window, kRows)) listing_keys_ = false;
  if (std::optional<fs::path> chosen = browser_.draw(look_, window)) {
    choice_ = std::move(chosen);
    typed_ = false;
  }
}

void StartScreen::draw_recent(Area area) {
  const Theme& theme = look_.theme;
  label(look_.fonts.title, {area.x, area.y, area.width, look_.px(28)}, theme.text, "Recent");
  float y = area.y + look_.px(32);
  if (recent_.empty()) {
    for (const std::string& words :
         wrap(look_.fonts.small, "Recordings and dumps that were opened are listed here.", area.width)) {
      label(look_.fonts.small, {area.x, y, area.width + look_.px(2), look_.px(20)}, theme.muted, words);
      y += look_.px(18);
    }
    return;
  }
  for (const fs::path& file : recent_) {
    if (y + look_.px(44) > area.bottom()) return;
    const Area row{area.x - look_.px(10), y, area.width + look_.px(20), look_.px(44)};
    ImGui::SetCursorScreenPos(row.min());
    if (ImGui::InvisibleButton(file.c_str(), {row.width, row.height})) {
      choice_ = file;
      typed_ = false;
    }
    if (ImGui::IsItemHovered()) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      fill(row, theme.raised, look_.px(6));
    }
    label(look_.fonts.text, {area.x, y + look_.px(4), area.width, look_.px(20)}, theme.accent,
          printable(file.filename().string()));
    label(look_.fonts.small, {area.x, y + look_.px(23), area.width, look_.px(16)}, theme.muted,
          printable(file.parent_path().string()));
    y += look_.px(46);
  }
}

/// What it is called, and below what it is about; all of it where it is pointed at.
void StartScreen::draw_card_words(const ScenarioCard& card, Area words) {
  const Theme& theme = look_.theme;
  const Area first{words.x, words.y + look_.px(9), words.width, look_.px(20)};
  label(look_.fonts.mono, first, theme.text, card.name);
  const float named = text_size(look_.fonts.mono, card.name).x + look_.px(16);
  label(look_.fonts.small, {first.x + named, first.y, first.width - named, first.height}, theme.muted,
        printable(card.formats));
  const Area second{words.x, words.y + look_.px(30), words.width, look_.px(18)};
  const std::string fault = printable(card.fault);
  const Color tone = theme.ink(card.faulty ? kNan : kHealthyLast);
  label(look_.fonts.small, second, tone, fault);
  const float told = text_size(look_.fonts.small, fault).x + look_.px(10);
  label(look_.fonts.small, {second.x + told, second.y, second.width - told, second.height}, theme.muted,
        printable(card.title));
  if (!ImGui::IsWindowHovered() || !words.holds(ImGui::GetIO().MousePos)) return;
  std::vector<std::string> lines = wrap(look_.fonts.small, printable(card.title), look_.px(kTip));
  lines.push_back(card.faulty ? fmt::format("The fault it shows: {}", fault) : "It shows that nothing is wrong: clean");
  if (!card.formats.empty()) lines.push_back(fmt::format("Its formats: {}", printable(card.formats)));
  lines.emplace_back();
  for (std::string& told : wrap(look_.fonts.small, printable(card.text), look_.px(kTip), kMostTold)) {
    lines.push_back(std::move(told));
  }
  tooltip(look_.fonts, look_.scale, card.name, lines);
}

void StartScreen::draw_card(const ScenarioCard& card, Area box) {
  const Theme& theme = look_.theme;
  fill(box, theme.panel, look_.px(7));
  const Color tone = card.faulty ? theme.cell(kNan) : theme.cell(kHealthyLast);
  fill({box.x, box.y + look_.px(10), look_.px(3), box.height - look_.px(20)}, tone, look_.px(1.5F));
  const bool runs = card.name == running_;
  const float button_wide = button_width(look_, "Run");
  const Area inner = box.inset(look_.px(18), 0);
  const float bar_wide = std::min(look_.px(260), inner.width / 2);
  const float room = inner.width - (runs ? bar_wide : button_wide) - look_.px(20);
  draw_card_words(card, {inner.x, box.y, room, box.height});
  ImGui::PushID(card.name.c_str());
  if (runs) {
    const Area bar{inner.right() - bar_wide, box.y + look_.px(8), bar_wide, look_.px(44)};
    if (draw_progress(look_, job_.progress(), "ops", job_.cancelled(), bar)) job_.cancel();
  } else if (running_.empty()) {
    const Area at{inner.right() - button_wide, box.y + (box.height - look_.px(30)) / 2, button_wide, look_.px(30)};
    if (button(look_, "run", "Run", at)) start(card);
  }
  ImGui::PopID();
}

void StartScreen::draw_search(Area area) {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.KeyCtrl && key_pressed(GLFW_KEY_F, false)) search_.focus();
  search_.draw(look_, "search", "search: a name, a fault, a format (Ctrl+F)", look_.fonts.text, area);
  const bool covered = browser_.is_open() || listing_keys_;
  if (key_pressed(GLFW_KEY_ESCAPE, false) && !path_.active() && !covered) search_.text.clear();
  if (search_.text == found_for_) return;
  found_for_ = search_.text;
  found_ = find_scenarios(scenarios_, found_for_);
}

void StartScreen::draw_cards(Area area) {
  ImGui::SetCursorScreenPos(area.min());
  ImGui::BeginChild("library", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float pitch = look_.px(kCard + 8);
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const Area box{at.x, at.y + static_cast<float>(i) * pitch, area.width - look_.px(14), look_.px(kCard)};
    if (ImGui::IsRectVisible(box.min(), box.max())) draw_card(scenarios_[found_[i]], box);
  }
  ImGui::SetCursorScreenPos({at.x, at.y + static_cast<float>(found_.size()) * pitch});
  ImGui::Dummy({1, 1});
  ImGui::EndChild();
}

void StartScreen::draw_library(Area area) {
  const Theme& theme = look_.theme;
  label(look_.fonts.title, {area.x, area.y, area.width, look_.px(28)}, theme.text, "Scenarios");
  const float taken = text_size(look_.fonts.title, "Scenarios").x + look_.px(20);
  const Area beside{area.x + taken, area.y, area.width - taken, look_.px(28)};
  for (const std::string_view words :
       {"run one, and its recording opens; it is kept in this folder", "run one, and its recording opens"}) {
    if (text_size(look_.fonts.small, words).x > beside.width) continue;
    label(look_.fonts.small, beside, theme.muted, words, 1);
    break;
  }
  const float top = area.y + look_.px(34);
  const Area below{area.x, top, area.width, look_.px(20)};
  if (scenarios_.empty()) {
    const std::string words = fmt::format("There are none in {}", scenarios::library_folder().string());
    label(look_.fonts.small, below, theme.muted, printable(words));
    return;
  }
  draw_search({area.x, top, area.width - look_.px(14), look_.px(30)});
  const float list = top + look_.px(40);
  if (found_.empty()) {
    const std::string words = fmt::format("No scenario is called {} or is about it; Esc shows all {} again",
                                          in_quotes(search_.text), scenarios_.size());
    label(look_.fonts.small, {area.x, list, area.width, look_.px(20)}, theme.muted, words);
    return;
  }
  draw_cards({area.x, list, area.width, area.bottom() - list});
}

void StartScreen::frame(Platform& platform) {
  take_run();
  keys();
  const Extent size = platform.size();
  const Area area{0, 0, static_cast<float>(size.width), static_cast<float>(size.height)};
  platform.set_ground(theme_.background);
  ImGui::SetNextWindowPos(area.min());
  ImGui::SetNextWindowSize({area.width, area.height});
  ImGui::Begin("start", nullptr, kBareScreen);
  ImGui::PushFont(look_.fonts.text);
  const Theme& theme = look_.theme;
  const Area inner = area.inset(look_.px(kScreenMargin), look_.px(36));
  label(look_.fonts.title, {inner.x, inner.y, inner.width, look_.px(26)}, theme.text, "nanscope");
  label(look_.fonts.text, {inner.x, inner.y + look_.px(26), inner.width, look_.px(22)},
        error_.empty() ? theme.muted : theme.ink(kNan),
        error_.empty() ? "where a transformer's numbers went wrong, why, and which setting did it" : printable(error_));
  if (!open_.empty()) draw_back({inner.x, inner.y, inner.width, look_.px(48)});
  const float top = area.y + look_.px(kScreenHead);
  const float height = area.height - look_.px(kScreenHead + 28);
  const float left = std::min(look_.px(kLeft), inner.width * 0.38F);
  draw_open({inner.x, top, left, look_.px(kDrop)});
  const float recent = top + look_.px(kDrop + (opening_ ? 108 : 70));
  draw_recent({inner.x, recent, left, area.bottom() - look_.px(28) - recent});
  const float right = inner.x + left + look_.px(48);
  draw_library({right, top - look_.px(4), inner.right() - right, height});
  ImGui::PopFont();
  ImGui::End();
  draw_above(area);
}

}  // namespace nanscope::gui
