#include "core/run/key_columns.h"

#include <algorithm>

namespace nanscope {

std::vector<std::int64_t> column_positions(const Step& step, const Span& span, std::int64_t columns) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(columns), -1);
  const std::int64_t length = step.batch > 0 ? step.rows / step.batch : step.rows;
  // Rows of other sequences are columns too where all are flattened into one.
  const bool flat = step.batch <= 1 && step.spans.size() > 1 && columns == step.rows;
  // Of a sliding window the last keys alone are kept.
  const bool batched = step.batch > 1;
  const bool left_padded = batched && span.row % std::max<std::int64_t>(1, length) + span.rows == length;
  const std::int64_t shift = flat                                 ? span.row - span.first_token
                             : batched && left_padded             ? columns - span.context
                             : !batched && columns < span.context ? columns - span.context
                                                                  : 0;
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::int64_t position = column - shift;
    const bool own = flat ? span.has(column) : position >= 0;
    if (own) positions[static_cast<std::size_t>(column)] = position;
  }
  return positions;
}

}  // namespace nanscope
