#include "gui/platform/synthetic_input.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>

#include <utility>

namespace nanscope::gui {

void SyntheticInput::move(ImVec2 to) {
  pointing_ = true;
  pointer_ = to;
}

void SyntheticInput::button(ImGuiMouseButton button, bool down) { buttons_[button] = down; }

void SyntheticInput::key(int key, bool down) { keys_.push_back({key, down}); }

void SyntheticInput::hold(Modifiers modifiers) {
  holding_ = true;
  held_ = modifiers;
}

void SyntheticInput::apply() {
  ImGuiIO& io = ImGui::GetIO();
  if (pointing_) {
    io.MousePos = pointer_;
    for (int i = 0; i < 3; ++i) io.MouseDown[i] = buttons_[i];
  }
  io.MouseWheel += std::exchange(wheel_, 0.0F);
  if (std::exchange(holding_, false)) {
    io.KeyCtrl = held_.ctrl;
    io.KeyShift = held_.shift;
    io.KeyAlt = held_.alt;
  }
  for (const KeyChange& change : std::exchange(keys_, {})) io.KeysDown[change.key] = change.down;
  if (const std::string typed = std::exchange(typed_, {}); !typed.empty()) io.AddInputCharactersUTF8(typed.c_str());
}

std::vector<std::filesystem::path> SyntheticInput::take_dropped() { return std::exchange(dropped_, {}); }

void name_keys() {
  constexpr std::pair<ImGuiKey, int> kNames[] = {{ImGuiKey_Tab, GLFW_KEY_TAB},
                                                 {ImGuiKey_LeftArrow, GLFW_KEY_LEFT},
                                                 {ImGuiKey_RightArrow, GLFW_KEY_RIGHT},
                                                 {ImGuiKey_UpArrow, GLFW_KEY_UP},
                                                 {ImGuiKey_DownArrow, GLFW_KEY_DOWN},
                                                 {ImGuiKey_PageUp, GLFW_KEY_PAGE_UP},
                                                 {ImGuiKey_PageDown, GLFW_KEY_PAGE_DOWN},
                                                 {ImGuiKey_Home, GLFW_KEY_HOME},
                                                 {ImGuiKey_End, GLFW_KEY_END},
                                                 {ImGuiKey_Insert, GLFW_KEY_INSERT},
                                                 {ImGuiKey_Delete, GLFW_KEY_DELETE},
                                                 {ImGuiKey_Backspace, GLFW_KEY_BACKSPACE},
                                                 {ImGuiKey_Space, GLFW_KEY_SPACE},
                                                 {ImGuiKey_Enter, GLFW_KEY_ENTER},
                                                 {ImGuiKey_Escape, GLFW_KEY_ESCAPE},
                                                 {ImGuiKey_KeyPadEnter, GLFW_KEY_KP_ENTER},
                                                 {ImGuiKey_A, GLFW_KEY_A},
                                                 {ImGuiKey_C, GLFW_KEY_C},
                                                 {ImGuiKey_V, GLFW_KEY_V},
                                                 {ImGuiKey_X, GLFW_KEY_X},
                                                 {ImGuiKey_Y, GLFW_KEY_Y},
                                                 {ImGuiKey_Z, GLFW_KEY_Z}};
  for (const auto& [name, key] : kNames) ImGui::GetIO().KeyMap[name] = key;
}

}  // namespace nanscope::gui
