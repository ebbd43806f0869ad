#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace nanscope::gui {

/// Rows of one height, of which those between `low` and `high` are seen.
struct RowsOnScreen {
  float top = 0;     ///< of the first row, seen or not
  float height = 1;  ///< of each
  float low = 0;
  float high = 0;
};

/// A name beside a row.
struct RowLabel {
  std::size_t wanted = 0;  ///< index among those that were wanted
  float centre = 0;
};

/// Where the names of rows are written, each `line` high: the most wanted first, none where one is already, none of
/// rows that are not seen. At the edges they stay whole.
std::vector<RowLabel> place_row_labels(std::span<const std::size_t> wanted, const RowsOnScreen& rows, float line);

}  // namespace nanscope::gui
