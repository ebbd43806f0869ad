#include "instrument/recompute/arithmetic.h"

#include <algorithm>
#include <vector>

#include "core/numbers/decode_span.h"

namespace nanscope {

bool PlainArithmetic::product(std::span<const float> x, std::int64_t rows, const MatrixView& weight, bool transposed,
                              std::span<float> out, std::span<float> squares) {
  const std::size_t size = info(weight.format).storage_bytes();
  const std::int64_t inputs = transposed ? weight.rows : weight.columns;
  const std::int64_t outputs = transposed ? weight.columns : weight.rows;
  std::fill(out.begin(), out.end(), 0.0F);
  std::fill(squares.begin(), squares.end(), 0.0F);
  std::vector<float> row(static_cast<std::size_t>(weight.columns));
  std::vector<double> sums(transposed ? out.size() : 0);
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    decode(weight.format, weight.bytes.subspan(static_cast<std::size_t>(r * weight.stride) * size), row);
    for (std::int64_t t = 0; t < rows; ++t) {
      const float* left = x.data() + t * inputs;
      if (transposed) {
        for (std::int64_t n = 0; n < outputs; ++n)
          sums[static_cast<std::size_t>(t * outputs + n)] += double{left[r]} * double{row[static_cast<std::size_t>(n)]};
        continue;
      }
      double sum = 0;
      for (std::int64_t k = 0; k < inputs; ++k) sum += double{left[k]} * double{row[static_cast<std::size_t>(k)]};
      out[static_cast<std::size_t>(t * outputs + r)] = static_cast<float>(sum);
    }
    for (std::size_t i = 0; i < row.size(); ++i)
      squares[transposed ? i : static_cast<std::size_t>(r)] += row[i] * row[i];
  }
  std::transform(sums.begin(), sums.end(), out.begin(), [](double sum) { return static_cast<float>(sum); });
  return true;
}

}  // namespace nanscope
