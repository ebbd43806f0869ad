#pragma once
#include <cstdint>

#include "core/blocks/block_format.h"
#include "core/blocks/block_scale.h"
#include "core/numbers/codec.h"

namespace nanscope {

/// Elements of one block within a matrix.
struct BlockPart {
  const float* values;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
  std::int64_t index;  ///< of the first element, for draws

  /// Bits of the largest |x|; beyond those of Inf where there is a NaN.
  std::uint32_t largest_magnitude() const;
  /// The first element of that magnitude.
  float first_of_magnitude(std::uint32_t magnitude) const;
};

/// What rounding to an element format needs, made once for a matrix.
struct ElementRounding {
  CodecParams codec;
  std::uint32_t seed;
  std::uint8_t nan_code;
  // Codes of finite values: n + ((field - lowest) << kept), where field is the exponent field, no lower than `lowest`,
  // and n the value in units of 2^(field - 127 - kept).
  std::uint32_t largest_bits;
  std::int32_t lowest;
  int kept;
  int sign_shift;

  ElementRounding(const BlockFormat& format, std::uint32_t seed);
};

/// Codes of a block's elements, one a byte, rows `stride` apart. `finite`: none of the elements is NaN or Inf.
void encode_elements(const BlockFormat& format, const BlockPart& part, const BlockScale& scale,
                     const ElementRounding& rounding, bool finite, std::uint8_t* codes, std::int64_t stride);

}  // namespace nanscope
