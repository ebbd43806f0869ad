#include "instrument/inspect/requantize.h"

#include <cmath>
#include <vector>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

float cast(Format format, float value) { return decode(format, encode(format, value, Overflow::saturate)); }

template <class NewScale>
double change(const StoredMatrix& matrix, std::span<const std::int64_t> rows, const NewScale& new_scale) {
  std::vector<float> values(static_cast<std::size_t>(matrix.columns));
  std::vector<float> scales(static_cast<std::size_t>(matrix.scale_columns));
  double lost = 0;
  double sum = 0;
  for (const std::int64_t row : rows) {
    matrix.row(row, values);
    matrix.scales_of_row(row, scales);
    for (std::size_t k = 0; k < values.size(); ++k) {
      const float scale = new_scale(scales[k / static_cast<std::size_t>(matrix.block_columns)]);
      const double difference = double{cast(matrix.element, values[k] / scale)} * scale - values[k];
      lost += difference * difference;
      sum += double{values[k]} * values[k];
    }
  }
  return sum > 0 ? std::sqrt(lost / sum) : 0;
}

}  // namespace

double change_by_scale(const StoredMatrix& matrix, std::span<const std::int64_t> rows, float scale) {
  return change(matrix, rows, [scale](float) { return scale; });
}

double change_by_bf16(const StoredMatrix& matrix, std::span<const std::int64_t> rows) {
  std::vector<float> values(static_cast<std::size_t>(matrix.columns));
  double lost = 0;
  double sum = 0;
  for (const std::int64_t row : rows) {
    matrix.row(row, values);
    for (const float value : values) {
      const double difference = double{cast(Format::bf16, value)} - value;
      lost += difference * difference;
      sum += double{value} * value;
    }
  }
  return sum > 0 ? std::sqrt(lost / sum) : 0;
}

double change_by_powers_of_two(const StoredMatrix& matrix, std::span<const std::int64_t> rows) {
  return change(matrix, rows, [](float scale) { return scale > 0 ? std::exp2(std::ceil(std::log2(scale))) : scale; });
}

}  // namespace nanscope
