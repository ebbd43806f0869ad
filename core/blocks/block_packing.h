#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/blocks/block_format.h"

/// Codes, one a byte, to what lies in memory and back. Spare nibbles and words at the end of a row are 0.
namespace nanscope {

/// Bytes of `columns` codes of one row, without scales. Packing::halves: of whole blocks.
std::size_t packed_bytes(const BlockFormat& format, std::int64_t columns);

/// `to` holds packed_bytes(format, from.size()).
void pack_codes(const BlockFormat& format, std::span<const std::uint8_t> from, std::span<std::byte> to);
/// `from` holds packed_bytes(format, to.size()).
void unpack_codes(const BlockFormat& format, std::span<const std::byte> from, std::span<std::uint8_t> to);

/// How much more stored nibbles are than codes: q4_0's are stored from 0 on.
std::uint8_t nibble_shift(const BlockFormat& format);
/// Whether BlockLoops::pack_blocks() knows the format.
bool packs_blocks(const BlockFormat& format);

/// Place of the scale of block (row, column) among those of a matrix with `columns` blocks a row, in
/// ScaleLayout::swizzled_128x4 (docs of cuDNN, "128x4 layout"): tiles row-major, in a tile (r % 32) * 16 + (r / 32) * 4
/// + c.
std::size_t swizzled_place(std::int64_t row, std::int64_t column, std::int64_t columns);
/// Scales of such a layout with all that fills it up.
std::size_t swizzled_count(std::int64_t rows, std::int64_t columns);

}  // namespace nanscope
