#include "gui/prepare/row_labels.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {

std::vector<RowLabel> place_row_labels(std::span<const std::size_t> wanted, const RowsOnScreen& rows, float line) {
  std::vector<RowLabel> placed;
  const float half = line / 2;
  if (rows.high - rows.low < line) return placed;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float top = rows.top + rows.height * static_cast<float>(wanted[i]);
    const float seen = std::min(top + rows.height, rows.high) - std::max(top, rows.low);
    if (seen < std::min(rows.height - 0.5F, half)) continue;
    const float centre = std::clamp(top + rows.height / 2, rows.low + half, rows.high - half);
    const bool free = std::none_of(placed.begin(), placed.end(), [&](const RowLabel& other) {
      return std::abs(other.centre - centre) < line - 0.5F;
    });
    if (free) placed.push_back({i, centre});
  }
  return placed;
}

}  // namespace nanscope::gui
