#pragma once
#include "gui/paint.h"

namespace nanscope::gui {

/// What the panes take of the window; a splitter changes it, and it stays when the window is resized.
struct Shares {
  float left = 0.1475F;
  float right = 0.365F;
  float upper = 0.47F;  ///< of the centre's height
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

/// Where everything is, in pixels. Shares that leave a pane too small to read are corrected.
/// `enlarged`: the lower pane takes the place of the upper and the right one, whose areas are empty.
WindowAreas lay_out(Area window, Shares& shares, float scale, bool enlarged);

}  // namespace nanscope::gui
