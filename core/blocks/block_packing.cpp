#include "core/blocks/block_packing.h"

#include <algorithm>
#include <cstring>

#include "core/blocks/block_loops.h"

namespace nanscope {
namespace {

constexpr std::size_t up(std::size_t count, std::size_t unit) { return (count + unit - 1) / unit; }

std::uint8_t nibble_at(std::span<const std::uint8_t> codes, std::size_t i) {
  return i < codes.size() ? static_cast<std::uint8_t>(codes[i] & 15U) : std::uint8_t{0};
}

void pack_nibbles(std::span<const std::uint8_t> from, std::span<std::byte> to, bool low_first) {
  const std::size_t whole = low_first ? from.size() / 2 : 0;
  block_loops().pack_low_first(from.data(), static_cast<std::int64_t>(whole),
                               reinterpret_cast<std::uint8_t*>(to.data()));
  for (std::size_t i = whole * 2; i < from.size(); i += 2) {
    const std::uint8_t first = nibble_at(from, i);
    const std::uint8_t second = nibble_at(from, i + 1);
    to[i / 2] = static_cast<std::byte>(low_first ? first | second << 4 : first << 4 | second);
  }
}

void unpack_nibbles(std::span<const std::byte> from, std::span<std::uint8_t> to, bool low_first) {
  const std::size_t whole = low_first ? to.size() / 2 : 0;
  block_loops().unpack_low_first(reinterpret_cast<const std::uint8_t*>(from.data()), static_cast<std::int64_t>(whole),
                                 to.data());
  for (std::size_t i = whole * 2; i < to.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(from[i / 2]);
    to[i] = static_cast<std::uint8_t>((i % 2 == 0) == low_first ? byte & 15U : byte >> 4);
  }
}

std::uint64_t word_at(const void* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, 8);
  return word;
}

constexpr std::uint64_t kNibbles = 0x0f0f0f0f0f0f0f0fULL;

/// Codes of int8, -8..7, are stored from 0 on: 8 more, which is another highest bit.
std::uint64_t nibble_flip(const BlockFormat& format) {
  return format.element == Format::int8 ? 0x0808080808080808ULL : 0;
}

void pack_half_block(std::size_t half, std::uint64_t flip, const std::uint8_t* codes, std::byte* to) {
  for (std::size_t i = 0; i < half; i += 8) {
    const std::uint64_t low = (word_at(codes + i) ^ flip) & kNibbles;
    const std::uint64_t high = (word_at(codes + half + i) ^ flip) & kNibbles;
    const std::uint64_t both = low | high << 4;
    std::memcpy(to + i, &both, 8);
  }
}

void unpack_half_block(std::size_t half, std::uint64_t flip, const std::byte* from, std::uint8_t* codes) {
  const auto store = [flip](std::uint8_t* to, std::uint64_t nibbles) {
    // q - 8: another highest bit, which then is the sign and goes into all bits above it.
    const std::uint64_t below = ~nibbles & flip;
    const std::uint64_t bytes = (nibbles ^ flip) | ((below << 5) - (below << 1));
    std::memcpy(to, &bytes, 8);
  };
  for (std::size_t i = 0; i < half; i += 8) {
    const std::uint64_t both = word_at(from + i);
    store(codes + i, both & kNibbles);
    store(codes + half + i, both >> 4 & kNibbles);
  }
}

void pack_halves(const BlockFormat& format, std::span<const std::uint8_t> from, std::span<std::byte> to) {
  const auto block = static_cast<std::size_t>(format.block.columns);
  const std::size_t whole = block % 16 == 0 ? from.size() / block * block : 0;
  for (std::size_t i = 0; i < whole; i += block) {
    pack_half_block(block / 2, nibble_flip(format), from.data() + i, to.data() + i / 2);
  }
  const auto nibble = [&](std::size_t i) {  // what is not there is 0
    const std::uint8_t code = i < from.size() ? from[i] : std::uint8_t{0};
    return static_cast<std::uint32_t>((code ^ (nibble_flip(format) & 15U)) & 15U);
  };
  for (std::size_t first = whole; first < from.size(); first += block) {
    for (std::size_t i = 0; i < block / 2; ++i) {
      to[first / 2 + i] = static_cast<std::byte>(nibble(first + i) | nibble(first + block / 2 + i) << 4);
    }
  }
}

void unpack_halves(const BlockFormat& format, std::span<const std::byte> from, std::span<std::uint8_t> to) {
  const auto block = static_cast<std::size_t>(format.block.columns);
  const std::size_t whole = block % 16 == 0 ? to.size() / block * block : 0;
  for (std::size_t i = 0; i < whole; i += block) {
    unpack_half_block(block / 2, nibble_flip(format), from.data() + i / 2, to.data() + i);
  }
  const std::uint32_t offset = format.element == Format::int8 ? 8 : 0;
  for (std::size_t i = whole; i < to.size(); ++i) {
    const std::size_t within = i % block;
    const auto byte = static_cast<std::uint32_t>(from[(i - within) / 2 + within % (block / 2)]);
    to[i] = static_cast<std::uint8_t>((within < block / 2 ? byte & 15U : byte >> 4) - offset);
  }
}

void pack_words(std::span<const std::uint8_t> from, std::span<std::byte> to) {
  const std::size_t whole = from.size() / 16 * 4;
  block_loops().pack_six_bit(from.data(), static_cast<std::int64_t>(whole), reinterpret_cast<std::uint8_t*>(to.data()));
  for (std::size_t word = whole; word < up(from.size(), 4); ++word) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4 && word * 4 + i < from.size(); ++i) {
      bits |= (from[word * 4 + i] & 63U) << (6 * i);
    }
    for (std::size_t i = 0; i < 3; ++i) to[word * 3 + i] = static_cast<std::byte>(bits >> (8 * i) & 0xffU);
  }
}

void unpack_words(std::span<const std::byte> from, std::span<std::uint8_t> to) {
  const std::size_t whole = to.size() / 16 * 4;
  block_loops().unpack_six_bit(reinterpret_cast<const std::uint8_t*>(from.data()), static_cast<std::int64_t>(whole),
                               to.data());
  for (std::size_t word = whole; word < up(to.size(), 4); ++word) {
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

bool packs_blocks(const BlockFormat& format) {
  return (format.packing == Packing::halves || format.packing == Packing::bytes) && format.block.columns % 16 == 0;
}

void pack_block(const BlockFormat& format, const std::uint8_t* codes, std::byte* bytes) {
  const auto columns = static_cast<std::size_t>(format.block.columns);
  if (format.packing == Packing::halves) return pack_half_block(columns / 2, nibble_flip(format), codes, bytes);
  for (std::size_t i = 0; i < columns; i += 16) std::memcpy(bytes + i, codes + i, 16);
}

void unpack_block(const BlockFormat& format, const std::byte* bytes, std::uint8_t* codes) {
  const auto columns = static_cast<std::size_t>(format.block.columns);
  if (format.packing == Packing::halves) return unpack_half_block(columns / 2, nibble_flip(format), bytes, codes);
  for (std::size_t i = 0; i < columns; i += 16) std::memcpy(codes + i, bytes + i, 16);
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
