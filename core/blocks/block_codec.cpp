#include "core/blocks/block_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/blocks/block_elements.h"
#include "core/blocks/block_packing.h"
#include "core/numbers/decode_span.h"

namespace nanscope {
namespace {

constexpr std::int64_t up(std::int64_t count, std::int64_t unit) { return (count + unit - 1) / unit; }

std::size_t scale_bytes(const BlockFormat& f) { return info(f.scale).storage_bytes(); }

/// Bytes of a row's scales and codes where they stand together.
struct Interleaved {
  std::size_t scales;  ///< of a group
  std::size_t codes;   ///< of a block
  std::int64_t blocks;

  explicit Interleaved(const BlockFormat& f)
      : scales(static_cast<std::size_t>(f.interleave) * scale_bytes(f)),
        codes(packed_bytes(f, f.block.columns)),
        blocks(f.interleave) {}
  std::size_t group() const { return scales + static_cast<std::size_t>(blocks) * codes; }
  std::size_t row(std::int64_t grid_columns) const {
    return static_cast<std::size_t>(up(grid_columns, blocks)) * group();
  }
  std::size_t scale_place(std::int64_t block, std::size_t bytes) const {
    return static_cast<std::size_t>(block / blocks) * group() + static_cast<std::size_t>(block % blocks) * bytes;
  }
  std::size_t code_place(std::int64_t block) const {
    return static_cast<std::size_t>(block / blocks) * group() + scales +
           static_cast<std::size_t>(block % blocks) * codes;
  }
};

/// Where a matrix's scale codes lie.
struct ScalePlaces {
  const BlockFormat& f;
  BlockGrid grid;
  std::size_t bytes;
  Interleaved interleaved;
  ScalePlaces(const BlockFormat& format, BlockGrid blocks)
      : f(format), grid(blocks), bytes(scale_bytes(format)), interleaved(format) {}

  std::size_t at(std::int64_t row, std::int64_t column) const {
    if (f.layout == ScaleLayout::swizzled_128x4) return swizzled_place(row, column, grid.columns) * bytes;
    if (f.layout == ScaleLayout::interleaved) {
      return static_cast<std::size_t>(row) * interleaved.row(grid.columns) + interleaved.scale_place(column, bytes);
    }
    return static_cast<std::size_t>(row * grid.columns + column) * bytes;
  }
};

float extreme_of(const BlockFormat& f, const BlockPart& part) {
  const std::uint32_t largest = part.largest_magnitude();
  if (f.rule != ScaleRule::signed_extreme) return std::bit_cast<float>(largest);
  return part.first_of_magnitude(largest);
}

/// Squared error of a block's codes, in f64.
double squared_error(const BlockFormat& f, const BlockPart& part, const std::uint8_t* codes, std::int64_t stride,
                     std::uint32_t scale, float second) {
  const float whole = block_scale_value(f, scale);
  const std::span<const float, 256> values = code_values(f.element);
  double sum = 0;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    for (std::int64_t i = 0; i < part.columns; ++i) {
      const float read = values[codes[row * stride + i]] * whole * second / f.second_full;
      const float off = read - part.values[row * part.stride + i];
      sum += static_cast<double>(off) * static_cast<double>(off);
    }
  }
  return sum;
}

/// Scale and codes of one block; codes one a byte with a stride.
BlockScale encode_part(const BlockFormat& f, const BlockPart& part, float second, const ElementRounding& rounding,
                       std::uint8_t* codes, std::int64_t stride) {
  const float extreme = extreme_of(f, part);
  const BlockScale scale = block_scale(f, extreme, second, rounding.nan_code);
  encode_elements(f, part, scale, rounding, std::isfinite(extreme), codes, stride);
  if (!f.four_over_six || !std::isfinite(extreme)) return scale;
  std::vector<std::uint8_t> other(static_cast<std::size_t>(part.rows * part.columns));
  const BlockScale wider = block_scale(f, extreme, second, rounding.nan_code, 1.5F);
  encode_elements(f, part, wider, rounding, true, other.data(), part.columns);
  const double with_6 = squared_error(f, part, codes, stride, scale.code, second);
  const double with_4 = squared_error(f, part, other.data(), part.columns, wider.code, second);
  if (!(with_4 < with_6)) return scale;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    std::copy_n(other.data() + row * part.columns, part.columns, codes + row * stride);
  }
  return wider;
}

/// A row's codes into its place.
void store_row(const BlockFormat& f, std::span<const std::uint8_t> codes, std::span<std::byte> row) {
  if (f.layout != ScaleLayout::interleaved) return pack_codes(f, codes, row);
  const Interleaved places(f);
  const auto block = static_cast<std::size_t>(f.block.columns);
  for (std::size_t first = 0; first < codes.size(); first += block) {
    const std::size_t at = places.code_place(static_cast<std::int64_t>(first / block));
    pack_codes(f, codes.subspan(first, std::min(block, codes.size() - first)), row.subspan(at, places.codes));
  }
}

void load_row(const BlockFormat& f, std::span<const std::byte> row, std::span<std::uint8_t> codes) {
  if (f.layout != ScaleLayout::interleaved) return unpack_codes(f, row, codes);
  const Interleaved places(f);
  const auto block = static_cast<std::size_t>(f.block.columns);
  for (std::size_t first = 0; first < codes.size(); first += block) {
    const std::size_t at = places.code_place(static_cast<std::int64_t>(first / block));
    unpack_codes(f, row.subspan(at, places.codes), codes.subspan(first, std::min(block, codes.size() - first)));
  }
}

std::size_t row_bytes(const BlockFormat& f, std::int64_t columns) {
  if (f.layout == ScaleLayout::interleaved) return Interleaved(f).row(up(columns, f.block.columns));
  return packed_bytes(f, columns);
}

/// real = value x whole, the product rounded once; SecondScale::amax has two more roundings.
void scale_values(const BlockFormat& f, const std::uint8_t* codes, std::int64_t count, std::uint32_t scale,
                  float second, float* out) {
  const std::span<const float, 256> values = code_values(f.element);
  const float alone = block_scale_value(f, scale);
  if (f.second == SecondScale::amax) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = values[codes[i]] * alone * second / f.second_full;
  } else if (f.reading == ScaleReading::ggml && std::isinf(alone)) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = values[codes[i]] * 2 * 0x1p127F;
  } else {
    const float whole = block_whole(f, alone, second);
    for (std::int64_t i = 0; i < count; ++i) out[i] = values[codes[i]] * whole;
    if (std::isfinite(whole) && f.element != Format::e4m3 && f.element != Format::e5m2) return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(out[i])) out[i] = std::bit_cast<float>(kCanonicalNan);
  }
}

}  // namespace

BlockGrid block_grid(const BlockFormat& format, std::int64_t rows, std::int64_t columns) {
  return {up(rows, format.block.rows), up(columns, format.block.columns)};
}

BlockBytes block_bytes(const BlockFormat& format, std::int64_t rows, std::int64_t columns) {
  const BlockGrid grid = block_grid(format, rows, columns);
  const std::size_t codes = static_cast<std::size_t>(rows) * row_bytes(format, columns);
  switch (format.layout) {
    case ScaleLayout::interleaved:
      return {codes, 0};
    case ScaleLayout::swizzled_128x4:
      return {codes, swizzled_count(grid.rows, grid.columns) * scale_bytes(format)};
    default:
      return {codes, static_cast<std::size_t>(grid.rows * grid.columns) * scale_bytes(format)};
  }
}

float block_amax(std::span<const float> values) {
  const BlockPart all{values.data(), 1, static_cast<std::int64_t>(values.size()), 0, 0};
  return std::bit_cast<float>(all.largest_magnitude());
}

void encode_blocks(const BlockFormat& format, std::span<const float> values, std::int64_t rows, std::int64_t columns,
                   float second, BlockMemory to, std::uint32_t seed) {
  const BlockGrid grid = block_grid(format, rows, columns);
  const ScalePlaces places(format, grid);
  const ElementRounding rounding(format, seed);
  const bool interleaved = format.layout == ScaleLayout::interleaved;
  const std::span<std::byte> scales = interleaved ? to.codes : to.scales;
  if (format.layout != ScaleLayout::linear) std::fill(scales.begin(), scales.end(), std::byte{0});
  const bool straight = format.packing == Packing::bytes && !interleaved;
  const std::int64_t height = format.block.rows;
  std::vector<std::uint8_t> band(straight ? 0 : static_cast<std::size_t>(height * columns));
  const std::size_t row_size = row_bytes(format, columns);
  for (std::int64_t block_row = 0; block_row < grid.rows; ++block_row) {
    const std::int64_t first = block_row * height;
    const std::int64_t count = std::min(height, rows - first);
    auto* codes = straight ? reinterpret_cast<std::uint8_t*>(to.codes.data()) + first * columns : band.data();
    for (std::int64_t block = 0; block < grid.columns; ++block) {
      const std::int64_t column = block * format.block.columns;
      const std::int64_t width = std::min<std::int64_t>(format.block.columns, columns - column);
      const BlockPart part{values.data() + first * columns + column, count, width, columns, first * columns + column};
      const BlockScale scale = encode_part(format, part, second, rounding, codes + column, columns);
      std::memcpy(scales.data() + places.at(block_row, block), &scale.code, places.bytes);
    }
    if (straight) continue;
    for (std::int64_t row = 0; row < count; ++row) {
      store_row(format,
                std::span(band).subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)),
                to.codes.subspan(static_cast<std::size_t>(first + row) * row_size, row_size));
    }
  }
}

void decode_blocks(const BlockFormat& format, BlockSource from, std::int64_t rows, std::int64_t columns, float second,
                   std::span<float> values) {
  const BlockGrid grid = block_grid(format, rows, columns);
  const ScalePlaces places(format, grid);
  const bool interleaved = format.layout == ScaleLayout::interleaved;
  const std::span<const std::byte> scales = interleaved ? from.codes : from.scales;
  const bool straight = format.packing == Packing::bytes && !interleaved;
  std::vector<std::uint8_t> unpacked(straight ? 0 : static_cast<std::size_t>(columns));
  const std::size_t row_size = row_bytes(format, columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span<const std::byte> bytes = from.codes.subspan(static_cast<std::size_t>(row) * row_size, row_size);
    if (!straight) load_row(format, bytes, unpacked);
    const auto* codes = straight ? reinterpret_cast<const std::uint8_t*>(bytes.data()) : unpacked.data();
    for (std::int64_t block = 0; block < grid.columns; ++block) {
      const std::int64_t column = block * format.block.columns;
      std::uint32_t scale = 0;
      std::memcpy(&scale, scales.data() + places.at(row / format.block.rows, block), places.bytes);
      const std::int64_t width = std::min<std::int64_t>(format.block.columns, columns - column);
      scale_values(format, codes + column, width, scale, second, values.data() + row * columns + column);
    }
  }
}

EncodedBlock encode_block(const BlockFormat& format, std::span<const float> values, float second, std::uint32_t seed) {
  EncodedBlock out;
  out.codes.resize(values.size());
  const auto count = static_cast<std::int64_t>(values.size());
  const BlockPart part{values.data(), 1, count, count, 0};
  out.scale = encode_part(format, part, second, ElementRounding(format, seed), out.codes.data(), count);
  return out;
}

float block_value(const BlockFormat& format, std::uint8_t code, std::uint32_t scale_code, float second) {
  float value = 0;
  scale_values(format, &code, 1, scale_code, second, &value);
  return value;
}

}  // namespace nanscope
