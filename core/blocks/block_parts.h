#pragma once
#include "core/blocks/block_elements.h"

/// One block of a matrix, by the way that knows every format and every value.
namespace nanscope {

/// Scale and codes; codes one a byte, rows `stride` apart.
BlockScale encode_part(const BlockFormat& format, const BlockPart& part, float second, const ElementRounding& rounding,
                       std::uint8_t* codes, std::int64_t stride);

/// real = value x whole, the product rounded once; SecondScale::amax has two more roundings.
void decode_part(const BlockFormat& format, const std::uint8_t* codes, std::int64_t count, std::uint32_t scale,
                 float second, float* out);

}  // namespace nanscope
