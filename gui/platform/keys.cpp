#include "gui/platform/keys.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <imgui.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace nanscope::gui {
namespace {

#if IMGUI_VERSION_NUM >= 18700
constexpr ImGuiKey kKeypadEnter = ImGuiKey_KeypadEnter;
#else
constexpr ImGuiKey_ kKeypadEnter = ImGuiKey_KeyPadEnter;
#endif

/// The names that all versions have; of a version with events, those of other keys as well.
constexpr std::pair<int, int> kNames[] = {
    {ImGuiKey_Tab, GLFW_KEY_TAB},
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
    {kKeypadEnter, GLFW_KEY_KP_ENTER},
    {ImGuiKey_A, GLFW_KEY_A},
    {ImGuiKey_C, GLFW_KEY_C},
    {ImGuiKey_V, GLFW_KEY_V},
    {ImGuiKey_X, GLFW_KEY_X},
    {ImGuiKey_Y, GLFW_KEY_Y},
    {ImGuiKey_Z, GLFW_KEY_Z},
#if IMGUI_VERSION_NUM >= 18700
    {ImGuiKey_Apostrophe, GLFW_KEY_APOSTROPHE},
    {ImGuiKey_Comma, GLFW_KEY_COMMA},
    {ImGuiKey_Minus, GLFW_KEY_MINUS},
    {ImGuiKey_Period, GLFW_KEY_PERIOD},
    {ImGuiKey_Slash, GLFW_KEY_SLASH},
    {ImGuiKey_Semicolon, GLFW_KEY_SEMICOLON},
    {ImGuiKey_Equal, GLFW_KEY_EQUAL},
    {ImGuiKey_LeftBracket, GLFW_KEY_LEFT_BRACKET},
    {ImGuiKey_Backslash, GLFW_KEY_BACKSLASH},
    {ImGuiKey_RightBracket, GLFW_KEY_RIGHT_BRACKET},
    {ImGuiKey_GraveAccent, GLFW_KEY_GRAVE_ACCENT},
    {ImGuiKey_KeypadAdd, GLFW_KEY_KP_ADD},
    {ImGuiKey_KeypadSubtract, GLFW_KEY_KP_SUBTRACT},
#endif
};

#if IMGUI_VERSION_NUM >= 18700
ImGuiKey named(int key) {
  if (key >= GLFW_KEY_A && key <= GLFW_KEY_Z) return static_cast<ImGuiKey>(ImGuiKey_A + key - GLFW_KEY_A);
  if (key >= GLFW_KEY_0 && key <= GLFW_KEY_9) return static_cast<ImGuiKey>(ImGuiKey_0 + key - GLFW_KEY_0);
  if (key >= GLFW_KEY_F1 && key <= GLFW_KEY_F12) return static_cast<ImGuiKey>(ImGuiKey_F1 + key - GLFW_KEY_F1);
  const auto found =
      std::find_if(std::begin(kNames), std::end(kNames), [key](const auto& one) { return one.second == key; });
  return found == std::end(kNames) ? ImGuiKey_None : static_cast<ImGuiKey>(found->first);
}
#endif

}  // namespace

bool key_pressed(int key, bool repeats) {
#if IMGUI_VERSION_NUM >= 18700
  const ImGuiKey name = named(key);
  return name != ImGuiKey_None && ImGui::IsKeyPressed(name, repeats);
#else
  return ImGui::IsKeyPressed(key, repeats);
#endif
}

void give_key(int key, bool down) {
#if IMGUI_VERSION_NUM >= 18700
  if (const ImGuiKey name = named(key); name != ImGuiKey_None) ImGui::GetIO().AddKeyEvent(name, down);
#else
  ImGui::GetIO().KeysDown[key] = down;
#endif
}

void give_modifiers(bool control, bool shift, bool alt) {
  ImGuiIO& io = ImGui::GetIO();
#if IMGUI_VERSION_NUM >= 18700
  io.AddKeyEvent(ImGuiMod_Ctrl, control);
  io.AddKeyEvent(ImGuiMod_Shift, shift);
  io.AddKeyEvent(ImGuiMod_Alt, alt);
#else
  io.KeyCtrl = control;
  io.KeyShift = shift;
  io.KeyAlt = alt;
#endif
}

void name_keys() {
#if IMGUI_VERSION_NUM >= 18700
  ImGui::GetIO().ConfigInputTrickleEventQueue = false;
#else
  for (const auto& [name, key] : kNames) ImGui::GetIO().KeyMap[name] = key;
#endif
}

}  // namespace nanscope::gui
