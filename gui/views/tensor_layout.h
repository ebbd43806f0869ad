#pragma once
#include <vector>

#include "gui/views/tensor_grid.h"

namespace nanscope::gui {

/// How many grids there are, and what is written about them.
enum class TensorMode : std::uint8_t {
  alone,
  tabs,          ///< with a twin, one part at a time
  side_by_side,  ///< with a twin: this, the other one, their difference
};

struct TensorLayout {
  Area bar;      ///< which output, head and ramp
  Area numbers;  ///< about the whole tensor
  Area words;    ///< how it differs from its twin
  Area tabs;     ///< which part is shown
  std::vector<GridAreas> grids;
  std::vector<Area> titles;  ///< of the grids, when they are side by side
  Area legend;
};

/// Side by side where each grid gets enough of the width.
TensorMode twin_mode(Area area, float scale);
TensorLayout lay_out_tensor(Area area, float scale, TensorMode mode);

}  // namespace nanscope::gui
