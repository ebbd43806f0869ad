#include "gui/platform/synthetic_input.h"

#include <utility>

#include "gui/platform/keys.h"

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
    give_modifiers(held_.ctrl, held_.shift, held_.alt);
  }
  for (const KeyChange& change : std::exchange(keys_, {})) give_key(change.key, change.down);
  if (const std::string typed = std::exchange(typed_, {}); !typed.empty()) io.AddInputCharactersUTF8(typed.c_str());
}

std::vector<std::filesystem::path> SyntheticInput::take_dropped() { return std::exchange(dropped_, {}); }

}  // namespace nanscope::gui
