#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/block_layout.h"
#include "core/blocks/block_loops.h"
#include "core/blocks/block_packing.h"
#include "core/blocks/block_parts.h"

namespace nanscope {
namespace {

constexpr std::int64_t up(std::int64_t count, std::int64_t unit) { return (count + unit - 1) / unit; }

/// A band: the rows of one row of blocks.
struct Band {
  const float* values;
  std::int64_t first;  ///< row of the matrix
  std::int64_t rows;
  std::int64_t columns;
  std::uint8_t* codes;             ///< one a byte, rows `columns` apart
  std::uint8_t* packed = nullptr;  ///< two a byte, where one row may be stored at once
};

/// The values of all 16 codes under all scales of a byte.
std::vector<float> all_products(const BlockFormat& f, float second) {
  std::vector<float> products(std::size_t{16} * 256);
  std::array<std::uint8_t, 16> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  for (std::uint32_t scale = 0; scale < 256; ++scale) {
    decode_part(f, codes.data(), 16, scale, second, products.data() + std::size_t{16} * scale);
  }
  return products;
}

class Encoder {
 public:
  Encoder(const BlockFormat& format, std::int64_t columns, float second, std::uint32_t seed)
      : format_(format),
        second_(second),
        rounding_(format, seed),
        plan_(make_block_plan(format, second)),
        width_(format.block.columns),
        grid_columns_(up(columns, width_)),
        whole_(has_block_loops(format) ? columns / width_ : 0),
        scales_(static_cast<std::size_t>(grid_columns_ + 16)),  // loops take 16 at a time, from anywhere

        factors_(scales_.size()),
        extremes_(scales_.size()),
        alone_(scales_.size()) {
    if (!format.four_over_six) return;
    products_ = all_products(format, second);
    wider_scales_.resize(scales_.size());
    wider_alone_.resize(scales_.size());
    wider_factors_.resize(scales_.size());
  }

  /// Whether codes of rows may be stored as they are packed.
  bool may_pack() const { return whole_ == grid_columns_ && nanscope::may_pack(format_); }
  /// Whether those of the last band were.
  bool packed() const { return plan_.packed; }

  /// Codes into the band, and the codes of its scales.
  std::span<const std::uint32_t> encode(const Band& band) {
    plan_.packed = band.packed != nullptr;
    bool any_alone = whole_ > 0 && quick(band);
    if (plan_.packed && any_alone) {  // which are stored one a byte
      plan_.packed = false;
      any_alone = quick(band);
    }
    for (std::int64_t block = any_alone ? 0 : whole_; block < grid_columns_; ++block) {
      if (block < whole_ && alone_[static_cast<std::size_t>(block)] == 0) continue;
      const std::int64_t column = block * width_;
      const std::int64_t count = std::min(width_, band.columns - column);
      const BlockPart part{band.values + column, band.rows, count, band.columns, band.first * band.columns + column};
      scales_[static_cast<std::size_t>(block)] =
          encode_part(format_, part, second_, rounding_, band.codes + column, band.columns).code;
    }
    return std::span(scales_).first(static_cast<std::size_t>(grid_columns_));
  }

 private:
  /// Whether there are blocks to be done by themselves.
  bool quick(const Band& band) {
    if (band.rows > 1) return tall(band);
    // Piece by piece, so that what was read for the scale is still near when the codes are made.
    const std::int64_t piece = std::max<std::int64_t>(1, kBlockPiece / width_);
    bool any_alone = false;
    for (std::int64_t first = 0; first < whole_; first += piece) {
      any_alone = low(band, first, std::min(piece, whole_ - first)) || any_alone;
    }
    return any_alone;
  }

  BlockScales scales_from(std::int64_t first) {
    return {scales_.data() + first, factors_.data() + first, alone_.data() + first};
  }

  /// Blocks of one row.
  bool low(const Band& band, std::int64_t first, std::int64_t count) {
    const BlockLoops& loops = block_loops();
    const float* values = band.values + first * width_;
    std::uint8_t* codes = plan_.packed ? band.packed + first * width_ / 2 : band.codes + first * width_;
    float* extremes = extremes_.data() + first;
    std::fill_n(extremes, count, 0.0F);
    const auto find = format_.rule == ScaleRule::signed_extreme ? loops.signed_extremes : loops.magnitudes;
    find(values, count, width_, extremes);
    const BlockScales to = scales_from(first);
    bool any_alone = loops.scales(plan_, extremes, count, 1, to);
    if (format_.four_over_six) any_alone = choose(values, extremes, count, to) || any_alone;
    loops.elements(plan_, values, count, to.factors, codes);
    return any_alone;
  }

  /// Blocks of many rows. They are worked on in pieces that fit into what cores share, not into what each has: a short
  /// piece of each of many rows is read from memory at a third of the pace of long ones.
  bool tall(const Band& band) {
    constexpr std::int64_t kShared = 4 << 20;
    const std::int64_t piece = std::max<std::int64_t>(1, kShared / std::int64_t{sizeof(float)} / (band.rows * width_));
    const BlockLoops& loops = block_loops();
    std::fill(extremes_.begin(), extremes_.end(), 0.0F);
    bool any_alone = false;
    for (std::int64_t first = 0; first < whole_; first += piece) {
      const std::int64_t count = std::min(piece, whole_ - first);
      const float* values = band.values + first * width_;
      std::uint8_t* codes = band.codes + first * width_;
      for (std::int64_t row = 0; row < band.rows; ++row) {
        loops.magnitudes(values + row * band.columns, count, width_, extremes_.data() + first);
      }
      const BlockScales to = scales_from(first);
      any_alone = loops.scales(plan_, extremes_.data() + first, count, 1, to) || any_alone;
      const bool last = first + count == whole_;
      plan_.ahead = last ? band.rows * band.columns - first * width_ : count * width_;
      for (std::int64_t row = 0; row < band.rows; ++row) {
        loops.elements(plan_, values + row * band.columns, count, to.factors, codes + row * band.columns);
      }
    }
    return any_alone;
  }

  /// Of the scales just made and those that are half as large again. A band of one row.
  bool choose(const float* values, const float* extremes, std::int64_t count, BlockScales to) {
    const BlockLoops& loops = block_loops();
    const BlockScales wider = {wider_scales_.data(), wider_factors_.data(), wider_alone_.data()};
    const bool any_alone = loops.scales(plan_, extremes, count, 1.5F, wider);
    loops.nearer(plan_, products_.data(), values, count, {to.codes, to.factors}, {wider.codes, wider.factors});
    for (std::int64_t block = 0; any_alone && block < count; ++block) to.alone[block] |= wider.alone[block];
    return any_alone;
  }

  const BlockFormat& format_;
  float second_;
  ElementRounding rounding_;
  BlockPlan plan_;
  std::int64_t width_;
  std::int64_t grid_columns_;
  std::int64_t whole_;  ///< blocks of a row that the loops take
  std::vector<std::uint32_t> scales_;
  std::vector<float> factors_;
  std::vector<float> extremes_;
  std::vector<std::uint32_t> alone_;  ///< not 0: a block to be done by itself
  std::vector<float> products_;       ///< four-over-six
  std::vector<std::uint32_t> wider_scales_;
  std::vector<std::uint32_t> wider_alone_;
  std::vector<float> wider_factors_;
};

constexpr std::int64_t kWorthATable = 1 << 14;  ///< elements that are decoded

/// Values of a row's whole blocks.
class Decoder {
 public:
  Decoder(const BlockFormat& format, std::int64_t elements, float second, bool small)
      : format_(format), second_(second), plan_(make_block_plan(format, second)), small_(small) {
    if (small && info(format.element).bits == 4 && elements >= kWorthATable) {
      products_ = all_products(format, second);
      return;
    }
    for (std::uint32_t code = 0; small && code < 256; ++code) {
      const float alone = block_scale_value(format, code);
      known_[code] = format.second == SecondScale::amax ? alone : block_whole(format, alone, second);
    }
  }

  /// False where there is a scale that is not done here: gguf's 2^128.
  bool decode(const std::uint8_t* codes, std::span<const std::uint32_t> scales, float* out) {
    const auto blocks = static_cast<std::int64_t>(scales.size());
    if (!products_.empty()) {
      block_loops().products(products_.data(), format_.block.columns, codes, blocks, scales.data(), out);
      return true;
    }
    if (small_ && format_.reading == ScaleReading::ggml && format_.scale == Format::e8m0 &&
        std::find(scales.begin(), scales.end(), 255U) != scales.end()) {
      return false;
    }
    wholes_.resize((scales.size() + 15) / 16 * 16);
    if (small_) {
      for (std::size_t i = 0; i < scales.size(); ++i) wholes_[i] = known_[scales[i]];
    } else if (format_.scale == Format::f16 && format_.second == SecondScale::none) {
      block_loops().half_values(scales.data(), blocks, wholes_.data());
    } else {
      for (std::size_t i = 0; i < scales.size(); ++i) {
        wholes_[i] = block_whole(format_, block_scale_value(format_, scales[i]), second_);
      }
    }
    block_loops().values(plan_, codes, blocks, wholes_.data(), out);
    return true;
  }

 private:
  const BlockFormat& format_;
  float second_;
  BlockPlan plan_;
  bool small_;                      ///< scales are of a byte
  std::array<float, 256> known_{};  ///< what codes are multiplied by under each of them
  std::vector<float> products_;
  std::vector<float> wholes_;
};

}  // namespace

BlockGrid block_grid(const BlockFormat& format, std::int64_t rows, std::int64_t columns) {
  return {up(rows, format.block.rows), up(columns, format.block.columns)};
}

BlockBytes block_bytes(const BlockFormat& format, std::int64_t rows, std::int64_t columns) {
  const BlockGrid grid = block_grid(format, rows, columns);
  const BlockLayout layout(format, rows, columns);
  const std::size_t codes = static_cast<std::size_t>(rows) * layout.row_bytes();
  if (format.layout == ScaleLayout::interleaved) return {codes, 0};
  if (format.layout == ScaleLayout::swizzled_128x4) {
    return {codes, swizzled_count(grid.rows, grid.columns) * layout.scale_bytes()};
  }
  return {codes, static_cast<std::size_t>(grid.rows * grid.columns) * layout.scale_bytes()};
}

void encode_blocks(const BlockFormat& format, std::span<const float> values, std::int64_t rows, std::int64_t columns,
                   float second, BlockMemory to, std::uint32_t seed) {
  const BlockGrid grid = block_grid(format, rows, columns);
  const BlockLayout layout(format, rows, columns);
  const std::span<std::byte> scales = format.layout == ScaleLayout::interleaved ? to.codes : to.scales;
  // What no block fills.
  const bool whole = columns % (format.block.columns * std::max<std::int64_t>(format.interleave, 1)) == 0;
  const bool filled = format.layout == ScaleLayout::linear || (format.layout == ScaleLayout::interleaved && whole);
  if (!filled) std::fill(scales.begin(), scales.end(), std::byte{0});
  const std::int64_t height = format.block.rows;
  std::vector<std::uint8_t> band(layout.straight() ? 0 : static_cast<std::size_t>(height * columns));
  Encoder encoder(format, columns, second, seed);
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    const std::int64_t first = row * height;
    const std::int64_t count = std::min(height, rows - first);
    auto* bytes = reinterpret_cast<std::uint8_t*>(to.codes.data());
    auto* codes = layout.straight() ? bytes + first * columns : band.data();
    auto* packed = encoder.may_pack() ? bytes + static_cast<std::size_t>(first) * layout.row_bytes() : nullptr;
    const std::span<const std::uint32_t> made =
        encoder.encode({values.data() + first * columns, first, count, columns, codes, packed});
    layout.store_scales(made, row, scales);
    if (layout.straight() || encoder.packed()) continue;
    for (std::int64_t i = 0; i < count; ++i) {
      layout.store_row({codes + i * columns, static_cast<std::size_t>(columns)},
                       to.codes.subspan(static_cast<std::size_t>(first + i) * layout.row_bytes(), layout.row_bytes()));
    }
  }
}

void decode_blocks(const BlockFormat& format, BlockSource from, std::int64_t rows, std::int64_t columns, float second,
                   std::span<float> values) {
  const BlockGrid grid = block_grid(format, rows, columns);
  const BlockLayout layout(format, rows, columns);
  const std::span<const std::byte> scales = format.layout == ScaleLayout::interleaved ? from.codes : from.scales;
  std::vector<std::uint8_t> unpacked(layout.straight() ? 0 : static_cast<std::size_t>(columns));
  Decoder decoder(format, rows * columns, second, layout.scale_bytes() == 1);
  const std::int64_t width = format.block.columns;
  const std::int64_t whole = width % 16 == 0 ? columns / width : 0;
  // Rows whose swizzled scales lie in the same lines of a cache are read together.
  const std::int64_t together = format.layout == ScaleLayout::swizzled_128x4 ? 4 : 1;
  const auto room = static_cast<std::size_t>(up(grid.columns, 16) * 16);
  std::vector<std::uint32_t> codes_of_scales(room * static_cast<std::size_t>(together));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span bytes = from.codes.subspan(static_cast<std::size_t>(row) * layout.row_bytes(), layout.row_bytes());
    if (!layout.straight()) layout.load_row(bytes, unpacked);
    const auto* codes = layout.straight() ? reinterpret_cast<const std::uint8_t*>(bytes.data()) : unpacked.data();
    float* out = values.data() + row * columns;
    const std::int64_t band = row / format.block.rows;
    for (std::int64_t i = band; band % together == 0 && i < std::min(band + together, grid.rows); ++i) {
      layout.load_scales(
          scales, i,
          std::span(codes_of_scales)
              .subspan(static_cast<std::size_t>(i % together) * room, static_cast<std::size_t>(grid.columns)));
    }
    const std::span scales_here =
        std::span(codes_of_scales)
            .subspan(static_cast<std::size_t>(band % together) * room, static_cast<std::size_t>(grid.columns));
    const bool done = whole > 0 && decoder.decode(codes, scales_here.first(static_cast<std::size_t>(whole)), out);
    for (std::int64_t block = done ? whole : 0; block < grid.columns; ++block) {
      const std::int64_t column = block * width;
      decode_part(format, codes + column, std::min(width, columns - column),
                  scales_here[static_cast<std::size_t>(block)], second, out + column);
    }
  }
}

}  // namespace nanscope
