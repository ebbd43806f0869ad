#pragma once
#include "gui/cell_map.h"

namespace nanscope::gui {

/// What is bad stays on top of the lines, and large enough to be seen.
void draw_marks(const GridScene& scene, const FrontImage& image);

}  // namespace nanscope::gui
