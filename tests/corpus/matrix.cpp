#include "tests/corpus/matrix.h"

#include <algorithm>
#include <cmath>

#include "instrument/weights/random.h"

namespace nanscope::corpus {

float absmax(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) {
    if (std::abs(v) > largest) largest = std::abs(v);
  }
  return largest;
}

Matrix normal(std::uint64_t seed, std::string_view name, std::int64_t rows, std::int64_t cols, double scale,
              Format format) {
  Matrix out(rows, cols);
  fill_gaussian(out.values, seed, name, static_cast<float>(scale));
  std::transform(out.values.begin(), out.values.end(), out.values.begin(),
                 [format](float v) { return stored(format, v); });
  return out;
}

std::int64_t draw(std::uint64_t seed, std::string_view name, std::int64_t below) {
  return static_cast<std::int64_t>(random_bits(seed, stream_of(name), 0)) % below;
}

}  // namespace nanscope::corpus
