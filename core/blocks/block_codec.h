#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/blocks/block_format.h"
#include "core/blocks/block_scale.h"

/// Matrices to block formats and back, on the host. Bits depend on the format and the values alone.
namespace nanscope {

/// A matrix's bytes in a block format.
struct BlockBytes {
  std::size_t codes = 0;
  std::size_t scales = 0;  ///< 0 under ScaleLayout::interleaved, where they stand among the codes
};

/// Blocks along a matrix's rows and columns; ragged ones count.
struct BlockGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
BlockGrid block_grid(const BlockFormat& format, std::int64_t rows, std::int64_t columns);

/// Rows of codes are packed one by one; scales are row-major over the grid, or as the layout says.
BlockBytes block_bytes(const BlockFormat& format, std::int64_t rows, std::int64_t columns);

/// What encode_blocks writes to and decode_blocks reads from: spans of at least block_bytes().
struct BlockMemory {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
};
struct BlockSource {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
};

/// values: (rows, columns) f32, row-major. second: as second_block_scale() gives it; `seed` is for Ties::stochastic,
/// whose draws depend on it and on the element's index (row * columns + column, mod 2^32) alone.
void encode_blocks(const BlockFormat& format, std::span<const float> values, std::int64_t rows, std::int64_t columns,
                   float second, BlockMemory to, std::uint32_t seed = 0);

/// The values, one f32 product of code value and whole scale each. NaN is canonical.
void decode_blocks(const BlockFormat& format, BlockSource from, std::int64_t rows, std::int64_t columns, float second,
                   std::span<float> values);

/// The largest magnitude; NaN where there is one.
float block_amax(std::span<const float> values);

/// One block by itself: `values` are all of its elements, `codes` one a byte.
struct EncodedBlock {
  BlockScale scale;
  std::vector<std::uint8_t> codes;
};
EncodedBlock encode_block(const BlockFormat& format, std::span<const float> values, float second,
                          std::uint32_t seed = 0);

/// The value of an element's code under a scale's.
float block_value(const BlockFormat& format, std::uint8_t code, std::uint32_t scale_code, float second);

}  // namespace nanscope
