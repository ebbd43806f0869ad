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
  std::uint8_t* codes;  ///< one a byte, rows `columns` apart
};

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
    for (std::uint32_t code = 0; code < 256; ++code) scale_values_[code] = block_scale_value(format, code);
    wider_scales_.resize(scales_.size());
    wider_alone_.resize(scales_.size());
    wider_codes_.resize(static_cast<std::size_t>(columns));
    errors_.resize(scales_.size() * 2);
  }

  /// Codes into the band, and the codes of its scales.
  std::span<const std::uint32_t> encode(const Band& band) {
    if (whole_ > 0) quick(band);
    for (std::int64_t block = 0; block < grid_columns_; ++block) {
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
  void quick(const Band& band) {
    std::fill(extremes_.begin(), extremes_.end(), 0.0F);
    // Piece by piece, so that what was read for the scale is still near when the codes are made.
    // Of tall blocks four, for rows that are worth going to.
    const std::int64_t piece = std::max<std::int64_t>(band.rows > 1 ? 4 : 1, kBlockPiece / (width_ * band.rows));
    for (std::int64_t first = 0; first < whole_; first += piece) quick(band, first, std::min(piece, whole_ - first));
  }

  void quick(const Band& band, std::int64_t first, std::int64_t count) {
    const BlockLoops& loops = block_loops();
    const float* values = band.values + first * width_;
    std::uint8_t* codes = band.codes + first * width_;
    float* extremes = extremes_.data() + first;
    float* factors = factors_.data() + first;
    const BlockScales to = {scales_.data() + first, factors, alone_.data() + first};
    const auto find = format_.rule == ScaleRule::signed_extreme ? loops.signed_extremes : loops.magnitudes;
    for (std::int64_t row = 0; row < band.rows; ++row) find(values + row * band.columns, count, width_, extremes);
    loops.scales(plan_, extremes, count, 1, to);
    for (std::int64_t row = 0; row < band.rows; ++row) {
      loops.elements(plan_, values + row * band.columns, count, factors, codes + row * band.columns);
    }
    if (format_.four_over_six) choose(values, codes, extremes, count, to);
  }

  /// Of the codes just made and those under a scale that is half as large again. A band of one row.
  void choose(const float* values, std::uint8_t* codes, const float* extremes, std::int64_t count, BlockScales to) {
    const BlockLoops& loops = block_loops();
    const std::span with_6 = std::span(errors_).first(scales_.size());
    const std::span with_4 = std::span(errors_).subspan(scales_.size());
    read_scales(to.codes, count, to.factors);
    loops.errors(plan_, values, count, codes, to.factors, with_6.data());
    loops.scales(plan_, extremes, count, 1.5F, {wider_scales_.data(), to.factors, wider_alone_.data()});
    loops.elements(plan_, values, count, to.factors, wider_codes_.data());
    read_scales(wider_scales_.data(), count, to.factors);
    loops.errors(plan_, values, count, wider_codes_.data(), to.factors, with_4.data());
    for (std::size_t block = 0; block < static_cast<std::size_t>(count); ++block) {
      to.alone[block] |= wider_alone_[block];
      if (!(with_4[block] < with_6[block])) continue;
      to.codes[block] = wider_scales_[block];
      const std::size_t place = block * static_cast<std::size_t>(width_);
      std::copy_n(wider_codes_.data() + place, width_, codes + place);
    }
  }

  void read_scales(const std::uint32_t* codes, std::int64_t count, float* scales) const {
    for (std::int64_t block = 0; block < count; ++block) scales[block] = scale_values_[codes[block] & 0xffU];
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
  std::vector<std::uint32_t> alone_;       ///< not 0: a block to be done by itself
  std::array<float, 256> scale_values_{};  ///< four-over-six
  std::vector<std::uint32_t> wider_scales_;
  std::vector<std::uint32_t> wider_alone_;
  std::vector<std::uint8_t> wider_codes_;
  std::vector<double> errors_;
};

/// What codes are multiplied by under every scale of one byte.
std::array<float, 256> all_wholes(const BlockFormat& f, float second) {
  std::array<float, 256> wholes{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float alone = block_scale_value(f, code);
    wholes[code] = f.second == SecondScale::amax ? alone : block_whole(f, alone, second);
  }
  return wholes;
}

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
  if (format.layout != ScaleLayout::linear) std::fill(scales.begin(), scales.end(), std::byte{0});
  const std::int64_t height = format.block.rows;
  std::vector<std::uint8_t> band(layout.straight() ? 0 : static_cast<std::size_t>(height * columns));
  Encoder encoder(format, columns, second, seed);
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    const std::int64_t first = row * height;
    const std::int64_t count = std::min(height, rows - first);
    auto* codes = layout.straight() ? reinterpret_cast<std::uint8_t*>(to.codes.data()) + first * columns : band.data();
    const std::span<const std::uint32_t> made =
        encoder.encode({values.data() + first * columns, first, count, columns, codes});
    layout.store_scales(made, row, scales);
    if (layout.straight()) continue;
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
  const BlockPlan plan = make_block_plan(format, second);
  const bool small = layout.scale_bytes() == 1;
  const bool ggml_powers = format.reading == ScaleReading::ggml && format.scale == Format::e8m0;
  const std::array<float, 256> known = small ? all_wholes(format, second) : std::array<float, 256>{};
  const std::int64_t width = format.block.columns;
  const std::int64_t whole = width % 16 == 0 ? columns / width : 0;
  std::vector<std::uint32_t> codes_of_scales(static_cast<std::size_t>(grid.columns));
  std::vector<float> wholes(codes_of_scales.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span bytes = from.codes.subspan(static_cast<std::size_t>(row) * layout.row_bytes(), layout.row_bytes());
    if (!layout.straight()) layout.load_row(bytes, unpacked);
    const auto* codes = layout.straight() ? reinterpret_cast<const std::uint8_t*>(bytes.data()) : unpacked.data();
    float* out = values.data() + row * columns;
    layout.load_scales(scales, row / format.block.rows, codes_of_scales);
    bool beyond = false;  // gguf's 2^128
    for (std::size_t block = 0; block < static_cast<std::size_t>(whole); ++block) {
      const std::uint32_t code = codes_of_scales[block];
      wholes[block] = small ? known[code] : block_whole(format, block_scale_value(format, code), second);
      beyond = beyond || (ggml_powers && code == 255);
    }
    if (whole > 0) block_loops().values(plan, codes, whole, wholes.data(), out);
    for (std::int64_t block = beyond ? 0 : whole; block < grid.columns; ++block) {
      const std::int64_t column = block * width;
      decode_part(format, codes + column, std::min(width, columns - column),
                  codes_of_scales[static_cast<std::size_t>(block)], second, out + column);
    }
  }
}

}  // namespace nanscope
