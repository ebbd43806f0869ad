#include "gui/keys_overlay.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <vector>

namespace nanscope::gui {
namespace {

constexpr float kWidth = 560;
constexpr float kRow = 26;
constexpr float kGroup = 34;
constexpr float kPad = 28;
constexpr float kKeys = 210;
constexpr int kShade = 150;  ///< of what is behind, 0 to 255

struct KeyRow {
  std::string keys;
  std::string_view what;  ///< empty: `keys` is the title of a group
};

std::vector<KeyRow> rows_for(std::size_t tabs) {
  return {{"The run", ""},
          {"Space", "play it, or stop"},
          {"Left, Right", "step by op"},
          {"N", "to the next link of the cascade"},
          {"O", "to the origin of the NaN"},
          {"The place", ""},
          {"Alt+Left, Alt+Right", "back, forward"},
          {"Ctrl+L", "type a place"},
          {"Ctrl+C, Ctrl+V", "copy the place, go to the copied one"},
          {"The views", ""},
          {fmt::format("1 to {}", tabs), "choose the view below the front"},
          {"F", "enlarge it, or back"},
          {"Wheel, drag", "zoom and pan a map; with Shift rows, with Ctrl columns"},
          {"Right double click", "show all of a map"},
          {"? or F1", "these keys"}};
}

}  // namespace

bool keys_asked_for() {
  const ImVector<ImWchar>& typed = ImGui::GetIO().InputQueueCharacters;
  return ImGui::IsKeyPressed(GLFW_KEY_F1, false) || std::find(typed.begin(), typed.end(), ImWchar{'?'}) != typed.end();
}

bool draw_keys_overlay(const Look& look, Area window, std::size_t tabs) {
  ImGui::SetNextWindowPos(window.min());
  ImGui::SetNextWindowSize({window.width, window.height});
  ImGui::SetNextWindowFocus();
  ImGui::Begin("keys", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBackground);
  fill(window, Color::hex(0x000000).alpha(kShade));
  const std::vector<KeyRow> rows = rows_for(tabs);
  float height = look.px(2 * kPad - 16);
  for (const KeyRow& row : rows) height += look.px(row.what.empty() ? kGroup : kRow);
  const float width = std::min(look.px(kWidth), window.width - look.px(40));
  const Area card{window.x + (window.width - width) / 2, window.y + std::max((window.height - height) / 2, look.px(8)),
                  width, height};
  fill(card, look.theme.panel, look.px(10));
  outline(card, look.theme.line, 1, look.px(10));
  float y = card.y + look.px(kPad - 16);
  const float x = card.x + look.px(kPad);
  for (const KeyRow& row : rows) {
    if (row.what.empty()) {
      y += look.px(kGroup - kRow);
      label(look.fonts.title, {x, y, width, look.px(kRow)}, look.theme.text, row.keys);
    } else {
      label(look.fonts.mono, {x, y, look.px(kKeys), look.px(kRow)}, look.theme.accent, row.keys);
      const float room = card.right() - look.px(kPad) - x - look.px(kKeys);
      label(look.fonts.small, {x + look.px(kKeys), y, room, look.px(kRow)}, look.theme.text, row.what);
    }
    y += look.px(kRow);
  }
  const bool clicked = ImGui::IsMouseClicked(ImGuiMouseButton_Left) && ImGui::IsWindowHovered();
  ImGui::End();
  return clicked;
}

}  // namespace nanscope::gui
