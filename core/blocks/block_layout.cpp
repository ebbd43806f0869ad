#include "core/blocks/block_layout.h"

#include <algorithm>
#include <cstring>

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
      straight_(format.packing == Packing::bytes && format.layout != ScaleLayout::interleaved) {
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

void BlockLayout::store_scales(std::span<const std::uint32_t> codes, std::int64_t row, std::span<std::byte> to) const {
  const std::size_t together = scales_together();
  with_bytes(scale_bytes_, [&]<class Stored>(Stored) {
    std::size_t place = scale_place(row);
    for (std::size_t first = 0; first < codes.size(); first += together, place += scale_step()) {
      std::byte* out = to.data() + place;
      const std::size_t end = std::min(first + together, codes.size());
      for (std::size_t i = first; i < end; ++i, out += sizeof(Stored)) {
        const auto code = static_cast<Stored>(codes[i]);
        std::memcpy(out, &code, sizeof(Stored));
      }
    }
  });
}

void BlockLayout::load_scales(std::span<const std::byte> from, std::int64_t row, std::span<std::uint32_t> codes) const {
  const std::size_t together = scales_together();
  with_bytes(scale_bytes_, [&]<class Stored>(Stored) {
    std::size_t place = scale_place(row);
    for (std::size_t first = 0; first < codes.size(); first += together, place += scale_step()) {
      const std::byte* in = from.data() + place;
      const std::size_t end = std::min(first + together, codes.size());
      for (std::size_t i = first; i < end; ++i, in += sizeof(Stored)) {
        Stored code;
        std::memcpy(&code, in, sizeof(Stored));
        codes[i] = code;
      }
    }
  });
}

std::size_t BlockLayout::scales_together() const {
  if (format_.layout == ScaleLayout::swizzled_128x4) return 4;
  return static_cast<std::size_t>(format_.layout == ScaleLayout::linear ? grid_.columns : format_.interleave);
}

template <class Block, class Run>
void BlockLayout::for_runs(std::size_t codes, const Block& block, const Run& run) const {
  if (format_.layout != ScaleLayout::interleaved) return run(std::size_t{0}, codes, std::size_t{0}, row_bytes_);
  const auto width = static_cast<std::size_t>(format_.block.columns);
  const auto interleave = static_cast<std::size_t>(format_.interleave);
  const std::size_t block_bytes = group_codes_ / interleave;
  const bool quick = packs_blocks(format_);
  std::size_t first = 0;
  for (std::size_t place = group_bytes_ - group_codes_; first < codes; place += group_bytes_) {
    if (quick && first + width * interleave <= codes) {
      for (std::size_t i = 0; i < interleave; ++i) block(first + i * width, place + i * block_bytes);
    } else {
      run(first, std::min(width * interleave, codes - first), place, group_codes_);
    }
    first += width * interleave;
  }
}

void BlockLayout::store_row(std::span<const std::uint8_t> codes, std::span<std::byte> row) const {
  for_runs(
      codes.size(),
      [&](std::size_t first, std::size_t place) { pack_block(format_, codes.data() + first, row.data() + place); },
      [&](std::size_t first, std::size_t count, std::size_t place, std::size_t bytes) {
        pack_codes(format_, codes.subspan(first, count), row.subspan(place, bytes));
      });
}

void BlockLayout::load_row(std::span<const std::byte> row, std::span<std::uint8_t> codes) const {
  for_runs(
      codes.size(),
      [&](std::size_t first, std::size_t place) { unpack_block(format_, row.data() + place, codes.data() + first); },
      [&](std::size_t first, std::size_t count, std::size_t place, std::size_t bytes) {
        unpack_codes(format_, row.subspan(place, bytes), codes.subspan(first, count));
      });
}

}  // namespace nanscope
