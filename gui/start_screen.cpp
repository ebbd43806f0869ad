#include "gui/start_screen.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "gui/controls.h"
#include "gui/drawn.h"
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

std::vector<ScenarioCard> list_scenarios(const fs::path& folder) {
  std::vector<ScenarioCard> cards;
  const Result<std::vector<fs::path>> files = scenarios::scenario_files(folder);
  if (!files) return cards;
  for (const fs::path& file : *files) {
    const Result<scenarios::Scenario> scenario = scenarios::load_scenario(file);
    if (!scenario) continue;
    cards.push_back({file, scenario->name, scenario->title, scenario->expect.verdict == Verdict::fault});
  }
  std::stable_partition(cards.begin(), cards.end(), [](const ScenarioCard& card) { return card.faulty; });
  return cards;
}

StartScreen::StartScreen(const Theme& theme, const Fonts& fonts, float scale, std::string open)
    : theme_(theme),
      fonts_(fonts),
      look_{theme_, fonts_, scale},
      scenarios_(list_scenarios(scenarios::library_folder())),
      recent_(recent_files(recent_files_path())),
      open_(std::move(open)) {}

std::optional<fs::path> StartScreen::take_choice() { return std::exchange(choice_, std::nullopt); }

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
  const bool typing = ImGui::GetIO().WantTextInput;
  const bool key =
      !typing && (ImGui::IsKeyPressed(GLFW_KEY_ESCAPE, false) || ImGui::IsKeyPressed(GLFW_KEY_HOME, false));
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
  ImGui::SetCursorScreenPos({drop.x, drop.bottom() + look_.px(14)});
  ImGui::PushFont(look_.fonts.mono);
  ImGui::SetNextItemWidth(drop.width);
  if (ImGui::InputTextWithHint("##path", "or type its path, then Enter", &typed_,
                               ImGuiInputTextFlags_EnterReturnsTrue) &&
      !typed_.empty()) {
    choice_ = typed_;
  }
  tell_item({drop.x, drop.bottom() + look_.px(14), drop.width, look_.fonts.mono->FontSize}, "path");
  ImGui::PopFont();
  if (!opening_) return;
  JobProgress shown = *opening_;
  shown.what = "opening " + printable(shown.what);
  const Area bar{drop.x, drop.bottom() + look_.px(44), drop.width, look_.px(44)};
  if (draw_progress(look_, shown, "MiB", cancelled_, bar)) cancel_ = true;
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
    if (ImGui::InvisibleButton(file.c_str(), {row.width, row.height})) choice_ = file;
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

void StartScreen::draw_card(const ScenarioCard& card, Area box) {
  const Theme& theme = look_.theme;
  fill(box, theme.panel, look_.px(7));
  const Color tone = card.faulty ? theme.cell(kNan) : theme.cell(kHealthyLast);
  fill({box.x, box.y + look_.px(10), look_.px(3), box.height - look_.px(20)}, tone, look_.px(1.5F));
  const bool runs = card.name == running_;
  const float button_wide = button_width(look_, "Run");
  const Area inner = box.inset(look_.px(18), 0);
  const float room = inner.width - (runs ? look_.px(260) : button_wide) - look_.px(20);
  label(look_.fonts.mono, {inner.x, box.y + look_.px(9), room, look_.px(20)}, theme.text, card.name);
  label(look_.fonts.small, {inner.x, box.y + look_.px(30), room, look_.px(18)}, theme.muted, printable(card.title));
  ImGui::PushID(card.name.c_str());
  if (runs) {
    const Area bar{inner.right() - look_.px(260), box.y + look_.px(8), look_.px(260), look_.px(44)};
    if (draw_progress(look_, job_.progress(), "ops", job_.cancelled(), bar)) job_.cancel();
  } else if (running_.empty()) {
    const Area at{inner.right() - button_wide, box.y + (box.height - look_.px(30)) / 2, button_wide, look_.px(30)};
    if (button(look_, "run", "Run", at)) start(card);
  }
  ImGui::PopID();
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
  if (scenarios_.empty()) {
    const std::string words = fmt::format("There are none in {}", scenarios::library_folder().string());
    label(look_.fonts.small, {area.x, area.y + look_.px(32), area.width, look_.px(20)}, theme.muted, printable(words));
    return;
  }
  const float top = area.y + look_.px(34);
  ImGui::SetCursorScreenPos({area.x, top});
  ImGui::BeginChild("library", {area.width, area.bottom() - top}, false, ImGuiWindowFlags_NoBackground);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float pitch = look_.px(kCard + 8);
  for (std::size_t i = 0; i < scenarios_.size(); ++i) {
    const Area box{at.x, at.y + static_cast<float>(i) * pitch, area.width - look_.px(14), look_.px(kCard)};
    draw_card(scenarios_[i], box);
  }
  ImGui::SetCursorScreenPos({at.x, at.y + static_cast<float>(scenarios_.size()) * pitch});
  ImGui::Dummy({1, 1});
  ImGui::EndChild();
}

void StartScreen::frame(Platform& platform) {
  take_run();
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
        error_.empty() ? theme.muted : theme.cell(kNan),
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
}

}  // namespace nanscope::gui
