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

/// Blocks whose halves lie beside each other.
BlockPlaces places_of(const BlockFormat& format, std::size_t blocks) {
  const auto count = static_cast<std::int64_t>(blocks);
  const std::int64_t bytes = format.block.columns / 2;
  return {.blocks = count,
          .width = format.block.columns,
          .together = count,
          .block_bytes = bytes,
          .group_bytes = bytes * count,
          .halves = true,
          .shift = nibble_shift(format)};
}

void pack_halves(const BlockFormat& format, std::span<const std::uint8_t> from, std::span<std::byte> to) {
  const auto block = static_cast<std::size_t>(format.block.columns);
  const std::size_t whole = packs_blocks(format) ? from.size() / block * block : 0;
  block_loops().pack_blocks(places_of(format, whole / block), from.data(), reinterpret_cast<std::uint8_t*>(to.data()));
  const auto nibble = [&](std::size_t i) {  // what is not there is 0
    const std::uint8_t code = i < from.size() ? from[i] : std::uint8_t{0};
    return static_cast<std::uint32_t>(code + nibble_shift(format)) & 15U;
  };
  for (std::size_t first = whole; first < from.size(); first += block) {
    for (std::size_t i = 0; i < block / 2; ++i) {
      to[first / 2 + i] = static_cast<std::byte>(nibble(first + i) | nibble(first + block / 2 + i) << 4);
    }
  }
}

void unpack_halves(const BlockFormat& format, std::span<const std::byte> from, std::span<std::uint8_t> to) {
  const auto block = static_cast<std::size_t>(format.block.columns);
  const std::size_t whole = packs_blocks(format) ? to.size() / block * block : 0;
  block_loops().unpack_blocks(places_of(format, whole / block), reinterpret_cast<const std::uint8_t*>(from.data()),
                              to.data());
  const std::uint32_t offset = nibble_shift(format);
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

std::uint8_t nibble_shift(const BlockFormat& format) { return format.element == Format::int8 ? 8 : 0; }

bool packs_blocks(const BlockFormat& format) {
  const std::int32_t columns = format.block.columns;
  if (format.packing == Packing::halves) return columns == 16 || columns % 32 == 0;
  return format.packing == Packing::bytes && columns % 16 == 0;
}

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
