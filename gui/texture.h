#pragma once
#include <imgui.h>

#include <cstdint>
#include <span>

namespace nanscope::gui {

/// A picture on the GPU, shown without smoothing. To be used while the platform lives.
class Texture {
 public:
  Texture() = default;
  Texture(const Texture&) = delete;
  Texture& operator=(const Texture&) = delete;
  ~Texture();

  /// Replaces the contents by width x height pixels as Color::packed() gives them.
  void upload(std::span<const std::uint32_t> pixels, int width, int height);
  /// The name as a pointer, which is what ImGui's OpenGL backend takes.
  ImTextureID id() const {
    return reinterpret_cast<ImTextureID>(static_cast<std::uintptr_t>(name_));  // NOLINT(performance-no-int-to-ptr)
  }
  bool empty() const { return name_ == 0; }

 private:
  unsigned name_ = 0;
};

/// The longest side that every OpenGL 3 takes.
inline constexpr int kTextureLimit = 1024 * 4;

}  // namespace nanscope::gui
