#pragma once
#include <memory>

#include "core/result.h"
#include "gui/platform/platform.h"

struct ImGuiContext;

namespace nanscope::gui {

/// Dear ImGui with its OpenGL backend, on the context that is current when it is made and still is
/// when it is destroyed.
class Renderer {
 public:
  static Result<std::unique_ptr<Renderer>> make();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;
  ~Renderer();

  void begin();
  /// Draws what was built since begin() into the bound framebuffer.
  void end(Extent size, Color ground);
  /// Draws once more what the last frame was made of: ImGui's Render() has been called.
  static void draw(Extent size, Color ground);

 private:
  Renderer() = default;
  ImGuiContext* context_ = nullptr;
  bool backend_ = false;
};

/// Of the framebuffer bound for reading.
Picture read_framebuffer(Extent size);

/// Between frames, after other faces were loaded.
void renew_letters();

}  // namespace nanscope::gui
