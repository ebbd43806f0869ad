#include "gui/window.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <imgui.h>

#include <algorithm>

#include "gui/views/registry.h"

namespace nanscope::gui {
namespace {

constexpr float kTopBar = 52;
constexpr float kStatusBar = 28;
constexpr float kGap = 6;
constexpr float kLeastPane = 180;
constexpr float kLeastCentre = 420;
constexpr ImGuiWindowFlags kBare = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                   ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus |
                                   ImGuiWindowFlags_NoScrollWithMouse;

/// A typed place, found in the recording.
struct FoundPlace final : Prepared {
  Selection selection;
};

Result<PreparedPtr> find_place(RunFacts& facts, const std::string& text) {
  Result<Selection> found = select(facts.recording(), text);
  if (!found) return tl::unexpected(found.error());
  auto answer = std::make_shared<FoundPlace>();
  answer->selection = std::move(*found);
  return answer;
}

}  // namespace

Window::Window(Recording recording, WindowSetup setup)
    : setup_(std::move(setup)),
      top_bar_(recording.path().filename().string()),
      left_width_(236 * setup_.scale),
      right_width_(584 * setup_.scale),
      store_(std::move(recording)) {
  navigator_.choose(setup_.start);
  const std::vector<std::string> names = setup_.view.empty() ? view_names() : std::vector<std::string>{setup_.view};
  for (const std::string& name : names) panes_.emplace_back(make_view(name));
  store_.ask("map", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.map(); });
  store_.ask("diagnosis", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.story(); });
}

bool Window::settled() const {
  return !store_.activity() &&
         std::all_of(panes_.begin(), panes_.end(), [](const Pane& pane) { return pane.settled(); });
}

void Window::take_answers() {
  for (Answer& answer : store_.poll()) {
    for (Pane& pane : panes_) pane.take(answer);
    if (!answer.result) {
      say_error(answer.result.error().message);
    } else if (answer.kind == "map") {
      navigator_.set_map(std::static_pointer_cast<const RunMap>(*answer.result));
    } else if (answer.kind == "diagnosis") {
      navigator_.set_story(std::static_pointer_cast<const Story>(*answer.result));
    } else if (answer.kind == "place") {
      navigator_.choose(static_cast<const FoundPlace&>(**answer.result).selection);
      message_ = {};
    }
  }
}

StatusText Window::status() const {
  if (!hint_.empty()) return {hint_, false};
  if (!message_.text.empty()) return message_;
  return {"Space plays the run, Left and Right step by op, N goes to the next event, O to the origin", false};
}

void Window::go(const std::string& place) {
  store_.ask("place", [place](RunFacts& facts) { return find_place(facts, place); });
}

void Window::keys(Platform& platform) {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput) return;
  const auto pressed = [](int key) { return ImGui::IsKeyPressed(key); };
  if (io.KeyCtrl && pressed(GLFW_KEY_C)) platform.set_clipboard(to_string(navigator_.selection().place));
  if (io.KeyCtrl && pressed(GLFW_KEY_V)) go(platform.clipboard());
  if (io.KeyCtrl && pressed(GLFW_KEY_L)) top_bar_.focus_place();
  if (io.KeyAlt && pressed(GLFW_KEY_LEFT)) navigator_.back();
  if (io.KeyAlt && pressed(GLFW_KEY_RIGHT)) navigator_.forward();
  if (io.KeyCtrl || io.KeyAlt) return;
  if (pressed(GLFW_KEY_SPACE)) navigator_.play(!navigator_.playing());
  if (pressed(GLFW_KEY_LEFT)) navigator_.step(-1);
  if (pressed(GLFW_KEY_RIGHT)) navigator_.step(1);
  if (pressed(GLFW_KEY_N)) navigator_.next_event();
  if (pressed(GLFW_KEY_O)) navigator_.go_to_origin();
}

ViewContext Window::context() const {
  return {setup_.theme,     setup_.fonts,       setup_.scale,         navigator_.selection(),
          navigator_.map(), navigator_.story(), navigator_.playhead()};
}

void Window::draw_pane(Pane& pane, Area area, bool titled) {
  ImGui::SetCursorScreenPos(area.min());
  ImGui::BeginChild(pane.view().name().data(), {area.width, area.height}, false,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  ImGui::PushFont(setup_.fonts.text);
  // What a view chooses takes effect after it is drawn: its context refers to the current selection.
  std::optional<Selection> chosen;
  const ViewActions actions{[&chosen](Selection selection) { chosen = std::move(selection); },
                            [this](std::string text) { hint_ = std::move(text); }};
  pane.draw(store_, context(), actions, area, titled);
  ImGui::PopFont();
  ImGui::EndChild();
  if (chosen) navigator_.choose(std::move(*chosen));
}

float Window::splitter(const char* id, Area area) const {
  ImGui::SetCursorScreenPos(area.min());
  ImGui::InvisibleButton(id, {area.width, area.height});
  if (ImGui::IsItemHovered() || ImGui::IsItemActive()) {
    ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
    fill(area.inset(area.width / 3, 0), setup_.theme.accent, area.width / 6);
  }
  return ImGui::IsItemActive() ? ImGui::GetIO().MouseDelta.x : 0;
}

void Window::layout(Platform& platform, Area area) {
  const Look look{setup_.theme, setup_.fonts, setup_.scale};
  const float gap = look.px(kGap);
  const float middle_y = area.y + look.px(kTopBar) + gap;
  const float middle_height = area.height - look.px(kTopBar + kStatusBar) - 2 * gap;
  const float least = look.px(kLeastPane);
  left_width_ = std::clamp(left_width_, least, std::max(least, area.width / 3));
  const float most = area.width - left_width_ - look.px(kLeastCentre);
  right_width_ = std::clamp(right_width_, least, std::max(least, most));
  const float centre_x = area.x + left_width_ + gap;
  const float right_x = area.right() - right_width_;

  top_bar_.draw(
      look, navigator_, {area.x, area.y, area.width, look.px(kTopBar)}, [this](const std::string& text) { go(text); },
      [&platform](const std::string& text) { platform.set_clipboard(text); });
  draw_requests(look, navigator_, {area.x, middle_y, left_width_, middle_height},
                [this](std::string text) { hint_ = std::move(text); });
  draw_pane(panes_[0], {centre_x, middle_y, right_x - gap - centre_x, middle_height}, true);
  draw_pane(panes_[1], {right_x, middle_y, right_width_, middle_height}, true);
  left_width_ += splitter("left", {centre_x - gap, middle_y, gap, middle_height});
  right_width_ -= splitter("right", {right_x - gap, middle_y, gap, middle_height});
  draw_status(look, status(), store_.activity(), navigator_.map().get(),
              {area.x, area.bottom() - look.px(kStatusBar), area.width, look.px(kStatusBar)});
}

void Window::frame(Platform& platform) {
  take_answers();
  navigator_.advance(static_cast<double>(ImGui::GetIO().DeltaTime));
  keys(platform);
  const Extent size = platform.size();
  const Area area{0, 0, static_cast<float>(size.width), static_cast<float>(size.height)};
  ImGui::SetNextWindowPos(area.min());
  ImGui::SetNextWindowSize({area.width, area.height});
  ImGui::Begin("nanscope", nullptr, kBare);
  ImGui::PushFont(setup_.fonts.text);
  hint_.clear();
  if (setup_.view.empty()) {
    layout(platform, area);
  } else {
    draw_pane(panes_[0], area, true);
  }
  ImGui::PopFont();
  ImGui::End();
}

}  // namespace nanscope::gui
