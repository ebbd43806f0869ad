#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "gui/prepare/front_image.h"
#include "gui/theme.h"

namespace nanscope::python {

/// Neighbouring rows or columns of a grid that have one name, or none; they end where the next ones begin.
struct GridPart {
  std::int64_t begin = 0;
  std::string name;
};

/// Cells with the words that a picture of them needs.
struct GridDrawing {
  std::string title;
  gui::CellGrid grid;
  std::vector<GridPart> rows;
  std::vector<GridPart> columns;
  bool ruled = false;   ///< the names of rows are positions, each that of the first row of its part
  std::string healthy;  ///< what the shades of healthy cells mean, "|x| 0.01 to 1000"; empty: there are none
};

/// A PNG whose cells take at most width x height pixels; each shows the worst of what it covers, so that no NaN is
/// lost. Errors: an empty grid, a size that no picture has.
Result<std::vector<std::byte>> draw_grid(const GridDrawing& drawing, const gui::Theme& theme, int width, int height);

}  // namespace nanscope::python
