#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "gui/color.h"
#include "gui/platform/synthetic_input.h"

/// What the window stands on: a place to draw, and where input comes from. Dear ImGui's context
/// lives as long as the platform that made it; one platform at a time.
namespace nanscope::gui {

struct Extent {
  int width = 0;
  int height = 0;
  bool operator==(const Extent&) const = default;
};

/// Pixels from the top left, four bytes each: red, green, blue, alpha.
struct Picture {
  Extent size;
  std::vector<std::uint8_t> rgba;
};

/// What happened since it was last asked.
struct PlatformEvents {
  bool close = false;
  bool input = false;                          ///< there was some before the time was over
  std::vector<std::filesystem::path> dropped;  ///< files let go over the window
  bool shift = false;                          ///< it was held when they were
};

class Platform {
 public:
  virtual ~Platform() = default;
  virtual Extent size() const = 0;  ///< in pixels
  virtual float scale() const = 0;  ///< 1 on an ordinary screen, 2 on one of double density
  /// Shows the last frame, then waits for input, at most so long.
  virtual PlatformEvents poll(double seconds) = 0;
  virtual void begin_frame() = 0;     ///< afterwards ImGui takes widgets
  virtual void end_frame() = 0;       ///< renders them
  virtual Picture read_pixels() = 0;  ///< of the frame just ended
  virtual std::string clipboard() = 0;
  virtual void set_clipboard(const std::string& text) = 0;
  virtual void set_title(const std::string& title) = 0;
  virtual void resize(Extent size) = 0;  ///< with the next frame, where the system lets it
  /// What lies below all that is drawn, from this frame on. To draw over all of it costs more than anything else where
  /// there is no graphics card.
  void set_ground(Color ground) { ground_ = ground; }
  /// For scripts.
  SyntheticInput& synthetic() { return synthetic_; }

 protected:
  SyntheticInput synthetic_;
  Color ground_;
};

/// When a frame that nobody sees becomes pixels, which is what takes most of its time.
enum class Drawing { each_frame, when_read };

/// Without a screen: EGL on Mesa's surfaceless platform into a framebuffer object. Frames advance by
/// 1/60 s whatever the clock says, so that pictures are reproducible. Errors: no EGL, no OpenGL 3.3.
Result<std::unique_ptr<Platform>> open_egl_platform(Extent size, Drawing drawing = Drawing::each_frame);

/// A window, for people. Errors: no display, no OpenGL 3.3.
Result<std::unique_ptr<Platform>> open_window_platform(Extent size, const std::string& title);

/// Errors: the file cannot be written.
Result<std::vector<std::byte>> encode_png(const Picture& picture);

}  // namespace nanscope::gui
