#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "gui/prepare/run_map.h"

namespace nanscope::gui {

/// Part of the map; the ends are not included.
struct FrontRange {
  std::int64_t column_begin = 0;
  std::int64_t column_end = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  bool operator==(const FrontRange&) const = default;
};

/// Texels in a row with what is bad that a line between steps or layers could cover, or an eye miss.
struct FrontMark {
  int x = 0;
  int y = 0;
  int width = 0;
  Cell worst = kNan;
  bool lone = false;  ///< small in both directions
};

/// Part of the map at the resolution of a screen.
struct FrontImage final : Prepared {
  FrontRange range;
  int width = 0;
  int height = 0;
  std::vector<Cell> texels;      ///< row-major
  std::vector<FrontMark> marks;  ///< to be drawn above lines; so many at most that a frame can draw them
};

/// A matrix of cells, row-major.
struct CellGrid {
  std::span<const Cell> cells;
  std::int64_t columns = 0;
  std::int64_t rows = 0;  ///< cells.size() is rows x columns
};

/// At most `max_width` x `max_height` texels. Each shows the worst of the cells it covers, and every
/// cell of the range is covered by exactly one: a single NaN is seen at any zoom.
FrontImage make_image(const CellGrid& grid, FrontRange range, int max_width, int max_height);
/// The same with its marks: of cells that are `bad` or worse, those of NaN and Inf first.
FrontImage make_front_image(const CellGrid& grid, FrontRange range, int max_width, int max_height, Cell bad = kClipped);
FrontImage make_front_image(const RunMap& map, FrontRange range, int max_width, int max_height);

}  // namespace nanscope::gui
