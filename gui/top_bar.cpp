#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "gui/bars.h"
#include "gui/drawn.h"
#include "gui/scrubber.h"

namespace nanscope::gui {
namespace {

enum class Icon { back, forward, play, pause, copy, next, origin, find, home };

void draw_icon(Icon icon, Area box, Color color, float scale) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float x = box.x + box.width / 2;
  const float y = box.y + box.height / 2;
  const auto px = [scale](float pixels) { return pixels * scale; };
  const std::uint32_t ink = color.packed();
  switch (icon) {
    case Icon::back:
    case Icon::forward: {
      const float way = icon == Icon::back ? -1.0F : 1.0F;
      const ImVec2 points[] = {{x - way * px(3), y - px(5)}, {x + way * px(3), y}, {x - way * px(3), y + px(5)}};
      list->AddPolyline(points, 3, ink, 0, px(2));
      break;
    }
    case Icon::play:
      list->AddTriangleFilled({x - px(4), y - px(6)}, {x + px(6), y}, {x - px(4), y + px(6)}, ink);
      break;
    case Icon::pause:
      list->AddRectFilled({x - px(5), y - px(6)}, {x - px(1.5F), y + px(6)}, ink);
      list->AddRectFilled({x + px(1.5F), y - px(6)}, {x + px(5), y + px(6)}, ink);
      break;
    case Icon::next:
      list->AddTriangleFilled({x - px(5), y - px(6)}, {x + px(3), y}, {x - px(5), y + px(6)}, ink);
      list->AddRectFilled({x + px(3.5F), y - px(6)}, {x + px(6), y + px(6)}, ink);
      break;
    case Icon::origin:
      list->AddCircle({x, y}, px(6), ink, 24, px(1.6F));
      list->AddCircleFilled({x, y}, px(2.4F), ink, 16);
      break;
    case Icon::find:
      list->AddCircle({x - px(1.5F), y - px(1.5F)}, px(4.6F), ink, 24, px(1.8F));
      list->AddLine({x + px(2), y + px(2)}, {x + px(6), y + px(6)}, ink, px(2));
      break;
    case Icon::home: {
      const ImVec2 roof[] = {{x - px(7), y + px(0.5F)}, {x, y - px(6)}, {x + px(7), y + px(0.5F)}};
      list->AddPolyline(roof, 3, ink, 0, px(1.8F));
      const ImVec2 walls[] = {
          {x - px(4.5F), y}, {x - px(4.5F), y + px(6)}, {x + px(4.5F), y + px(6)}, {x + px(4.5F), y}};
      list->AddPolyline(walls, 4, ink, 0, px(1.8F));
      break;
    }
    case Icon::copy:
      list->AddRect({x - px(5), y - px(2)}, {x + px(2), y + px(6)}, ink, px(1.5F), 0, px(1.5F));
      list->AddRect({x - px(2), y - px(6)}, {x + px(5), y + px(2)}, ink, px(1.5F), 0, px(1.5F));
      break;
  }
}

void tip(const Look& look, const char* words) {
  if (!ImGui::IsItemHovered()) return;
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(look.px(10), look.px(7)));
  ImGui::SetTooltip("%s", words);
  ImGui::PopStyleVar();
}

/// A square button; true when it was pressed.
bool icon_button(const Look& look, const char* id, Icon icon, Area box, bool enabled, const char* words) {
  ImGui::SetCursorScreenPos(box.min());
  const bool pressed = ImGui::InvisibleButton(id, {box.width, box.height}) && enabled;
  if (enabled) fill(box, ImGui::IsItemHovered() ? look.theme.hovered : look.theme.raised, look.px(5));
  tell_item(box, id);
  draw_icon(icon, box, enabled ? look.theme.text : look.theme.muted.alpha(100), look.scale);
  tip(look, words);
  return pressed;
}

bool text_button(const Look& look, const char* words, Area box, bool enabled, const char* explained) {
  ImGui::SetCursorScreenPos(box.min());
  const bool pressed = ImGui::InvisibleButton(words, {box.width, box.height}) && enabled;
  fill(box, enabled && ImGui::IsItemHovered() ? look.theme.hovered : look.theme.raised, look.px(5));
  label(look.fonts.small, box, enabled ? look.theme.text : look.theme.muted.alpha(120), words, 0.5F);
  tip(look, explained);
  return pressed;
}

}  // namespace

void TopBar::draw(const Look& look, Navigator& navigator, Area area, const TopBarActions& actions) {
  fill(area, look.theme.panel);
  const TopBarAreas areas = lay_out_top_bar(area, look.scale);
  if (icon_button(look, "home", Icon::home, areas.home, true, "To the start screen: other recordings (Home)")) {
    actions.home();
  }
  const std::string name = printable(file_);
  label(look.fonts.title, areas.file, look.theme.text, name);
  if (areas.file.holds(ImGui::GetIO().MousePos) && text_size(look.fonts.title, name).x > areas.file.width) {
    ImGui::SetTooltip("%s", name.c_str());
  }
  const SelectionHistory& history = navigator.history();
  if (icon_button(look, "back", Icon::back, areas.back, history.can_go_back(), "Back (Alt+Left)")) navigator.back();
  if (icon_button(look, "forward", Icon::forward, areas.forward, history.can_go_forward(), "Forward (Alt+Right)")) {
    navigator.forward();
  }
  place_field(look, navigator, areas.place, actions);
  if (icon_button(look, "copy", Icon::copy, areas.copy, true, "Copy the place (Ctrl+C)")) {
    actions.copy(to_string(navigator.selection().place));
  }
  const bool ready = navigator.ops() > 0;
  const bool playing = navigator.playing();
  if (icon_button(look, "play", playing ? Icon::pause : Icon::play, areas.play, ready,
                  "Play the run from here (Space), slower and faster (- and +)")) {
    navigator.play(!playing);
  }
  draw_scrubber(look, navigator, areas.scrubber);
  jumps(look, navigator, areas);
  if (icon_button(look, "find", Icon::find, areas.find, true, "Find a command or a place (Ctrl+P)")) actions.find();
}

void TopBar::jumps(const Look& look, Navigator& navigator, const TopBarAreas& areas) const {
  const auto jump = [&](const char* name, Icon icon, Area box, bool enabled, const char* explained) {
    return areas.words ? text_button(look, name, box, enabled, explained)
                       : icon_button(look, name, icon, box, enabled, explained);
  };
  const auto& story = navigator.story();
  const bool events = navigator.ops() > 0 && story && !story->events.empty();
  if (jump("Next event", Icon::next, areas.next, events,
           "To the next link of the cascade (N), the one before (Shift+N)"))
    navigator.next_event();
  const bool origin = story && story->origin.has_value();
  if (jump("Origin", Icon::origin, areas.origin, origin, "Where the first NaN or Inf is born (O)")) {
    navigator.go_to_origin();
  }
}

void TopBar::place_field(const Look& look, const Navigator& navigator, Area area, const TopBarActions& actions) {
  if (!place_.engaged() && asked_ == 0) place_.text = to_string(navigator.selection().place);
  if (place_.draw(look, "place", "request/step/layer/op.role[token,channel]", look.fonts.mono, area)) {
    asked_ = actions.go(place_.text);
  }
}

bool TopBar::take_answer(std::uint64_t ticket, const std::string& error) {
  if (asked_ == 0 || ticket != asked_) return false;
  asked_ = 0;
  if (!error.empty()) place_.refuse(error);
  return true;
}

}  // namespace nanscope::gui
