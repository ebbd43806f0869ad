#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/numbers/format.h"
#include "tests/corpus/matrix.h"

/// Casts to few bits with a scale, as servers do them. Real value = code's value x scale.
namespace nanscope::corpus {

/// How many elements share a scale.
enum class Sharing : std::uint8_t { tensor, row, channel, block };

struct Cast {
  Format format = Format::e4m3;
  Sharing sharing = Sharing::tensor;
  int block = 32;  ///< elements along a row, when blocks share
  Overflow overflow = Overflow::saturate;
  float divisor = 448;              ///< scale = absmax / divisor
  std::optional<float> given = {};  ///< a scale that is not computed from these values; shared by the tensor
  bool power_of_two = false;        ///< scales are rounded up to a power of two, as e8m0 holds them
};

struct Quantized {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Cast cast;
  std::vector<std::uint32_t> codes;
  std::vector<float> scales;
  std::int64_t clipped = 0;  ///< finite values well beyond the largest code

  /// Index in `scales` of the one that an element shares.
  std::size_t scale_of(std::int64_t row, std::int64_t col) const;
  std::vector<std::int64_t> scale_shape() const;
};

Quantized quantize(const Matrix& values, const Cast& cast);
/// Codes read as `format`, times their scale `power` times: 1 is right.
Matrix dequantize(const Quantized& held, Format format, int power);
/// A scale applied `power` times: 0 leaves it out, -1 divides by it.
float applied(float scale, int power);

}  // namespace nanscope::corpus
