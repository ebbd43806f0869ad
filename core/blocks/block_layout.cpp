#include "core/blocks/block_layout.h"

#include <algorithm>
#include <cstring>

#include "core/blocks/block_loops.h"
#include "core/blocks/block_packing.h"

namespace nanscope {
namespace {

/// Calls visit(a constant of as many bytes): copies of a known length are one instruction.
template <class Visit>
void with_bytes(std::size_t bytes, const Visit& visit) {
  if (bytes == 1) return visit(std::uint8_t{});
  if (bytes == 2) return visit(std::uint16_t{});
  visit(std::uint32_t{});
}

}  // namespace

BlockLayout::BlockLayout(const BlockFormat& format, std::int64_t rows, std::int64_t columns)
    : format_(format),
      grid_(block_grid(format, rows, columns)),
      scale_bytes_(info(format.scale).storage_bytes()),
      group_codes_(static_cast<std::size_t>(format.interleave) * packed_bytes(format, format.block.columns)),
      group_bytes_(static_cast<std::size_t>(format.interleave) * scale_bytes_ + group_codes_),
      row_bytes_(packed_bytes(format, columns)),
      straight_(format.packing == Packing::bytes && format.layout != ScaleLayout::interleaved),
      loops_know_(packs_blocks(format)) {
  if (format.layout != ScaleLayout::interleaved) return;
  row_bytes_ = static_cast<std::size_t>((grid_.columns + format.interleave - 1) / format.interleave) * group_bytes_;
}

std::size_t BlockLayout::scale_place(std::int64_t row) const {
  if (format_.layout == ScaleLayout::swizzled_128x4) return swizzled_place(row, 0, grid_.columns) * scale_bytes_;
  if (format_.layout == ScaleLayout::linear) return static_cast<std::size_t>(row * grid_.columns) * scale_bytes_;
  return static_cast<std::size_t>(row) * row_bytes_;
}

std::size_t BlockLayout::scale_step() const {
  return format_.layout == ScaleLayout::swizzled_128x4 ? 512 * scale_bytes_ : group_bytes_;
}

template <class Move>
void BlockLayout::for_scales(std::size_t count, std::int64_t row, const Move& move) const {
  const std::size_t together = scales_together();
  const std::size_t step = scale_step();
  std::size_t place = scale_place(row);
  if (together == 1) {
    for (std::size_t i = 0; i < count; ++i, place += step) move(i, place, std::size_t{1});
    return;
  }
  std::size_t first = 0;
  if (together == 4) {
    for (; first + 4 <= count; first += 4, place += step) move(first, place, std::size_t{4});
  }
  for (; first + together <= count; first += together, place += step) move(first, place, together);
  if (first < count) move(first, place, count - first);
}

void BlockLayout::store_scales(std::span<const std::uint32_t> codes, std::int64_t row, std::span<std::byte> to) const {
  with_bytes(scale_bytes_, [&]<class Stored>(Stored) {
    for_scales(codes.size(), row, [&](std::size_t first, std::size_t place, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto code = static_cast<Stored>(codes[first + i]);
        std::memcpy(to.data() + place + i * sizeof(Stored), &code, sizeof(Stored));
      }
    });
  });
}

void BlockLayout::load_scales(std::span<const std::byte> from, std::int64_t row, std::span<std::uint32_t> codes) const {
  with_bytes(scale_bytes_, [&]<class Stored>(Stored) {
    for_scales(codes.size(), row, [&](std::size_t first, std::size_t place, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        Stored code;
        std::memcpy(&code, from.data() + place + i * sizeof(Stored), sizeof(Stored));
        codes[first + i] = code;
      }
    });
  });
}

std::size_t BlockLayout::scales_together() const {
  if (format_.layout == ScaleLayout::swizzled_128x4) return 4;
  return static_cast<std::size_t>(format_.layout == ScaleLayout::linear ? grid_.columns : format_.interleave);
}

BlockPlaces BlockLayout::places(std::size_t codes) const {
  const std::int64_t interleave = format_.interleave;
  return {.blocks = static_cast<std::int64_t>(codes) / format_.block.columns,
          .width = format_.block.columns,
          .together = interleave,
          .block_bytes = static_cast<std::int64_t>(group_codes_) / interleave,
          .group_bytes = static_cast<std::int64_t>(group_bytes_),
          .halves = format_.packing == Packing::halves,
          .shift = nibble_shift(format_)};
}

/// Calls run(first code, codes, byte of the row, bytes) for the blocks that the loops leave.
template <class Run>
void BlockLayout::for_rest(std::size_t codes, std::size_t done, const Run& run) const {
  const auto width = static_cast<std::size_t>(format_.block.columns);
  const auto interleave = static_cast<std::size_t>(format_.interleave);
  const std::size_t block_bytes = group_codes_ / interleave;
  for (std::size_t block = done; block * width < codes; ++block) {
    const std::size_t place =
        block / interleave * group_bytes_ + group_bytes_ - group_codes_ + block % interleave * block_bytes;
    run(block * width, std::min(width, codes - block * width), place, block_bytes);
  }
}

void BlockLayout::store_row(std::span<const std::uint8_t> codes, std::span<std::byte> row) const {
  if (format_.layout != ScaleLayout::interleaved) return pack_codes(format_, codes, row);
  const BlockPlaces places = loops_know_ ? this->places(codes.size()) : BlockPlaces{};
  block_loops().pack_blocks(places, codes.data(),
                            reinterpret_cast<std::uint8_t*>(row.data()) + group_bytes_ - group_codes_);
  for_rest(codes.size(), static_cast<std::size_t>(places.blocks),
           [&](std::size_t first, std::size_t count, std::size_t place, std::size_t bytes) {
             pack_codes(format_, codes.subspan(first, count), row.subspan(place, bytes));
           });
}

void BlockLayout::load_row(std::span<const std::byte> row, std::span<std::uint8_t> codes) const {
  if (format_.layout != ScaleLayout::interleaved) return unpack_codes(format_, row, codes);
  const BlockPlaces places = loops_know_ ? this->places(codes.size()) : BlockPlaces{};
  block_loops().unpack_blocks(places, reinterpret_cast<const std::uint8_t*>(row.data()) + group_bytes_ - group_codes_,
                              codes.data());
  for_rest(codes.size(), static_cast<std::size_t>(places.blocks),
           [&](std::size_t first, std::size_t count, std::size_t place, std::size_t bytes) {
             unpack_codes(format_, row.subspan(place, bytes), codes.subspan(first, count));
           });
}

}  // namespace nanscope
