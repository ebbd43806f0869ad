#include "core/blocks/block_packing.h"

#include <algorithm>
#include <cstring>

namespace nanscope {
namespace {

constexpr std::size_t up(std::size_t count, std::size_t unit) { return (count + unit - 1) / unit; }

/// Eight nibbles from eight bytes, the first lowest.
std::uint32_t gather_nibbles(std::uint64_t bytes) {
  bytes &= 0x0f0f0f0f0f0f0f0fULL;
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffULL;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffULL;
  return static_cast<std::uint32_t>(bytes | bytes >> 16);
}

std::uint64_t spread_nibbles(std::uint32_t nibbles) {
  std::uint64_t bytes = nibbles;
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffffULL;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ffULL;
  return (bytes | bytes << 4) & 0x0f0f0f0f0f0f0f0fULL;
}

std::uint8_t nibble_at(std::span<const std::uint8_t> codes, std::size_t i) {
  return i < codes.size() ? static_cast<std::uint8_t>(codes[i] & 15U) : std::uint8_t{0};
}

void pack_nibbles(std::span<const std::uint8_t> from, std::span<std::byte> to, bool low_first) {
  const std::size_t whole = low_first ? from.size() / 8 * 8 : 0;
  for (std::size_t i = 0; i < whole; i += 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, from.data() + i, 8);
    const std::uint32_t packed = gather_nibbles(bytes);
    std::memcpy(to.data() + i / 2, &packed, 4);
  }
  for (std::size_t i = whole; i < from.size(); i += 2) {
    const std::uint8_t first = nibble_at(from, i);
    const std::uint8_t second = nibble_at(from, i + 1);
    to[i / 2] = static_cast<std::byte>(low_first ? first | second << 4 : first << 4 | second);
  }
}

void unpack_nibbles(std::span<const std::byte> from, std::span<std::uint8_t> to, bool low_first) {
  const std::size_t whole = low_first ? to.size() / 8 * 8 : 0;
  for (std::size_t i = 0; i < whole; i += 8) {
    std::uint32_t packed;
    std::memcpy(&packed, from.data() + i / 2, 4);
    const std::uint64_t bytes = spread_nibbles(packed);
    std::memcpy(to.data() + i, &bytes, 8);
  }
  for (std::size_t i = whole; i < to.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(from[i / 2]);
    to[i] = static_cast<std::uint8_t>((i % 2 == 0) == low_first ? byte & 15U : byte >> 4);
  }
}

/// What is added to a code for its nibble: int8 codes -8..7 are stored from 0 on.
std::uint8_t nibble_offset(const BlockFormat& format) { return format.element == Format::int8 ? 8 : 0; }

void pack_halves(const BlockFormat& format, std::span<const std::uint8_t> from, std::span<std::byte> to) {
  const auto block = static_cast<std::size_t>(format.block.columns);
  const std::uint8_t offset = nibble_offset(format);
  for (std::size_t first = 0; first < from.size(); first += block) {
    std::byte* out = to.data() + first / 2;
    if (first + block > from.size()) {  // what is not there is 0
      for (std::size_t i = 0; i < block / 2; ++i) {
        const auto low = first + i < from.size() ? from[first + i] : std::uint8_t{0};
        const auto high = first + block / 2 + i < from.size() ? from[first + block / 2 + i] : std::uint8_t{0};
        out[i] = static_cast<std::byte>(((low + offset) & 15) | ((high + offset) & 15) << 4);
      }
      return;
    }
    const std::uint8_t* in = from.data() + first;
    for (std::size_t i = 0; i < block / 2; ++i) {
      out[i] = static_cast<std::byte>(((in[i] + offset) & 15) | ((in[block / 2 + i] + offset) & 15) << 4);
    }
  }
}

void unpack_halves(const BlockFormat& format, std::span<const std::byte> from, std::span<std::uint8_t> to) {
  const auto block = static_cast<std::size_t>(format.block.columns);
  const std::uint8_t offset = nibble_offset(format);
  for (std::size_t first = 0; first < to.size(); first += block) {
    const std::byte* in = from.data() + first / 2;
    const std::size_t half = block / 2;
    const std::size_t there = to.size() - first;
    for (std::size_t i = 0; i < std::min(half, there); ++i) {
      to[first + i] = static_cast<std::uint8_t>((static_cast<unsigned>(in[i]) & 15U) - offset);
    }
    for (std::size_t i = half; i < std::min(block, there); ++i) {
      to[first + i] = static_cast<std::uint8_t>((static_cast<unsigned>(in[i - half]) >> 4) - offset);
    }
  }
}

void pack_words(std::span<const std::uint8_t> from, std::span<std::byte> to) {
  for (std::size_t word = 0; word < up(from.size(), 4); ++word) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4 && word * 4 + i < from.size(); ++i) {
      bits |= (from[word * 4 + i] & 63U) << (6 * i);
    }
    for (std::size_t i = 0; i < 3; ++i) to[word * 3 + i] = static_cast<std::byte>(bits >> (8 * i) & 0xffU);
  }
}

void unpack_words(std::span<const std::byte> from, std::span<std::uint8_t> to) {
  for (std::size_t word = 0; word < up(to.size(), 4); ++word) {
    const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(from[word * 3 + i]); };
    const std::uint32_t bits = at(0) | at(1) << 8 | at(2) << 16;
    for (std::size_t i = 0; i < 4 && word * 4 + i < to.size(); ++i) {
      to[word * 4 + i] = static_cast<std::uint8_t>(bits >> (6 * i) & 63U);
    }
  }
}

}  // namespace

std::size_t packed_bytes(const BlockFormat& format, std::int64_t columns) {
  const auto count = static_cast<std::size_t>(columns);
  const auto block = static_cast<std::size_t>(format.block.columns);
  switch (format.packing) {
    case Packing::low_first:
    case Packing::high_first:
      return up(count, 2);
    case Packing::halves:
      return up(count, block) * (block / 2);
    case Packing::six_bit:
      return up(count, 4) * 3;
    default:
      return count;
  }
}

void pack_codes(const BlockFormat& format, std::span<const std::uint8_t> from, std::span<std::byte> to) {
  switch (format.packing) {
    case Packing::low_first:
    case Packing::high_first:
      return pack_nibbles(from, to, format.packing == Packing::low_first);
    case Packing::halves:
      return pack_halves(format, from, to);
    case Packing::six_bit:
      return pack_words(from, to);
    default:
      std::memcpy(to.data(), from.data(), from.size());
  }
}

void unpack_codes(const BlockFormat& format, std::span<const std::byte> from, std::span<std::uint8_t> to) {
  switch (format.packing) {
    case Packing::low_first:
    case Packing::high_first:
      return unpack_nibbles(from, to, format.packing == Packing::low_first);
    case Packing::halves:
      return unpack_halves(format, from, to);
    case Packing::six_bit:
      return unpack_words(from, to);
    default:
      std::memcpy(to.data(), from.data(), to.size());
  }
}

std::size_t swizzled_place(std::int64_t row, std::int64_t column, std::int64_t columns) {
  const std::int64_t tiles = (columns + 3) / 4;
  const std::int64_t tile = row / 128 * tiles + column / 4;
  const std::int64_t r = row % 128;
  return static_cast<std::size_t>(tile * 512 + r % 32 * 16 + r / 32 * 4 + column % 4);
}

std::size_t swizzled_count(std::int64_t rows, std::int64_t columns) {
  return up(static_cast<std::size_t>(rows), 128) * up(static_cast<std::size_t>(columns), 4) * 512;
}

}  // namespace nanscope
