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
  const std::int64_t padding = span.row % std::max<std::int64_t>(1, length);
  // Padding before a sequence has its columns too, in a batch and where one sequence is all there is.
  const bool alone = step.spans.size() == 1 && padding > 0;
  const bool left_padded = (batched || alone) && padding + span.rows == length;
  // With nothing cached before it, what is behind the frame are slots of a cache that nobody has written.
  const bool begins = span.first_token == 0 && columns >= length;
  const std::int64_t shift = flat                                 ? span.row - span.first_token
                             : left_padded                        ? (begins ? padding : columns - span.context)
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
