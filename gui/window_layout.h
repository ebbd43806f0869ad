#pragma once
#include "gui/paint.h"

namespace nanscope::gui {

/// What the panes take of the window; a splitter changes it, and it stays when the window is resized.
struct Shares {
  float left = 0.1475F;
  float right = 0.365F;
  float upper = 0.47F;  ///< of the centre's height
  bool operator==(const Shares&) const = default;
};

struct WindowAreas {
  Area top_bar;
  Area left;
  Area upper;  ///< of the centre
  Area lower;
  Area right;
  Area status;
  Area left_gap;  ///< between the panes: these can be dragged
  Area right_gap;
  Area middle_gap;
};

/// The panes cannot be read below this width and height.
inline constexpr float kLeastWindowWidth = 700;
inline constexpr float kLeastWindowHeight = 500;
inline bool too_small(Area window, float scale) {
  return window.width < kLeastWindowWidth * scale || window.height < kLeastWindowHeight * scale;
}

/// Where everything is, in pixels. A narrow window has no room for the left pane, whose area is empty. Shares that
/// leave a pane too small to read are corrected. `enlarged`: the lower pane takes the place of the upper and the right
/// one, whose areas are empty.
WindowAreas lay_out(Area window, Shares& shares, float scale, bool enlarged);

}  // namespace nanscope::gui
