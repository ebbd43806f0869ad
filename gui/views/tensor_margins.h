#pragma once
#include "gui/views/tensor_grid.h"

namespace nanscope::gui {

/// Profiles of rows and columns: how much of each is bad, else how far up the ramp its largest value stands. One bad
/// element among thousands is seen; the line that is pointed at tells its numbers.
void draw_grid_margins(const GridScene& scene, const TensorPicture& picture, const GridAreas& areas);

}  // namespace nanscope::gui
