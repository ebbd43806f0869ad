#pragma once

/// Keys by GLFW's numbers, for every version of Dear ImGui that Debian and Ubuntu have: up to 1.86 it takes a backend's
/// own numbers, since 1.89 names of its own and events.
namespace nanscope::gui {

/// Whether a key (GLFW_KEY_...) went down in this frame, or repeats.
bool key_pressed(int key, bool repeats = true);
/// Gives Dear ImGui a key that went down or up.
void give_key(int key, bool down);
/// The modifiers that are held.
void give_modifiers(bool control, bool shift, bool alt);
/// Says which keys Dear ImGui itself listens to; once a context.
void name_keys();

}  // namespace nanscope::gui
