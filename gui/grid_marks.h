#pragma once
#include "gui/cell_map.h"

namespace nanscope::gui {

/// What is bad, large enough to be seen at any zoom, on top of lines and frames.
void draw_marks(const GridScene& scene, const FrontImage& image);

}  // namespace nanscope::gui
