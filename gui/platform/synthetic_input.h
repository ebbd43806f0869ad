#pragma once
#include <imgui.h>

#include <filesystem>
#include <string>
#include <vector>

namespace nanscope::gui {

/// Modifiers that are held.
struct Modifiers {
  bool ctrl = false;
  bool shift = false;
  bool alt = false;
};

/// Input that nobody gives by hand. What is written here takes effect with the next frame, beside what
/// the window gets from people; the pointer stays where it was moved to.
class SyntheticInput {
 public:
  void move(ImVec2 to);
  void button(ImGuiMouseButton button, bool down);
  void wheel(float notches) { wheel_ += notches; }
  /// `key` is a number of GLFW's.
  void key(int key, bool down);
  void hold(Modifiers modifiers);
  /// UTF-8, as a keyboard gives characters.
  void type(const std::string& text) { typed_ += text; }
  void drop(std::filesystem::path file) { dropped_.push_back(std::move(file)); }
  void close() { closing_ = true; }

  /// Tells ImGui; after its backends have, before it begins the frame.
  void apply();
  bool closing() const { return closing_; }
  /// The files let go over the window since the last call.
  std::vector<std::filesystem::path> take_dropped();

 private:
  struct KeyChange {
    int key;
    bool down;
  };
  bool pointing_ = false;
  ImVec2 pointer_;
  bool buttons_[3] = {};
  float wheel_ = 0;
  std::vector<KeyChange> keys_;
  bool holding_ = false;
  Modifiers held_;
  std::string typed_;
  std::vector<std::filesystem::path> dropped_;
  bool closing_ = false;
};

}  // namespace nanscope::gui
