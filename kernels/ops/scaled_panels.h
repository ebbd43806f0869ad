#pragma once
/// Weights of codes and scales to the panels that a product reads, for the registers of a CPU. What a panel's scales
/// are worth is made first, for a piece of its columns, by the same decoding as that of codes.
#include <type_traits>

#include "kernels/ops/weight_panels.h"
#include "kernels/scaled_weight.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// The most blocks in a row of a piece, and the floats that their scales take.
inline constexpr std::int64_t kMostBlocks = 64;
inline constexpr std::int64_t kScaleFloats = kMostBlocks * kLanes;

/// What words of a panel are multiplied by: (blocks, 32) f32.
struct PanelScales {
  const float* values = nullptr;
  int shift = 0;           ///< a block has 2^shift words
  std::int64_t begun = 0;  ///< words of the first block before the piece

  __attribute__((always_inline)) const float* at(std::int64_t word, int part) const {
    return values + ((begun + word) >> shift) * kLanes + part * kWords;
  }
  __attribute__((always_inline)) Words operator()(std::int64_t word, int part, Words weights) const {
    Register<float> scale;
    std::memcpy(&scale, at(word, part), sizeof(scale));
    return reinterpret_cast<Words>(reinterpret_cast<Register<float>>(weights) * scale);
  }
};

/// How the columns of a weight are read: in words of codes that lie in one block each, or one by one.
struct ScaledColumns {
  bool words = false;      ///< whether words can be read
  int shift = 62;          ///< a block has 2^shift words
  std::int64_t bytes = 0;  ///< of a row before the first column
};

/// As many words from one on as have no more blocks than `most`.
struct ScaledPiece {
  std::int64_t block = 0;   ///< of the first word, counted from the weight's first column
  std::int64_t begun = 0;   ///< words of that block before it
  std::int64_t words = 0;   ///< whole squares
  std::int64_t blocks = 0;  ///< that they lie in

  __attribute__((always_inline))
  ScaledPiece(const ScaledColumns& columns, std::int64_t first, std::int64_t left, std::int64_t most)
      : block(first >> columns.shift), begun(first - (block << columns.shift)), words(left) {
    most -= begun > 0 ? 1 : 0;
    if (words >> columns.shift >= most) words = (most << columns.shift) / kWords * kWords;
    if (words > left) words = left;
    blocks = ((begun + words - 1) >> columns.shift) + 1;
  }
};

/// Calls body(integral_constant<Format, F>{}) for the formats that codes of a weight have.
template <class Body>
NANSCOPE_FN void with_code_format(Format format, const Body& body) {
  switch (format) {
    case Format::e4m3:
      return body(std::integral_constant<Format, Format::e4m3>{});
    case Format::e5m2:
      return body(std::integral_constant<Format, Format::e5m2>{});
    case Format::int8:
      return body(std::integral_constant<Format, Format::int8>{});
    default:
      return body(std::integral_constant<Format, Format::e2m1>{});
  }
}

template <Format F>
NANSCOPE_FN ScaledColumns scaled_columns(const ScaledWeight& weight) {
  constexpr int kBits = kFormatTable[static_cast<std::size_t>(F)].bits;
  ScaledColumns columns;
  columns.bytes = weight.first_column * kBits / 8;
  const std::int64_t block = weight.block.columns;
  if (weight.first_column * kBits % 8 != 0) return columns;
  if (block >= weight.codes.columns) {  // one block, wherever it begins
    columns.words = true;
    return columns;
  }
  const std::int64_t words = block / kPerWord<F>;
  columns.words = block % kPerWord<F> == 0 && (words & (words - 1)) == 0 && weight.first_column % block == 0;
  if (columns.words) columns.shift = __builtin_ctzll(static_cast<unsigned long long>(words));
  return columns;
}

/// The row of the codes that lane `n` of a panel is. Lanes beyond the last row get that one.
NANSCOPE_FN std::int64_t scaled_row(const ScaledWeight& weight, std::int64_t rows, std::int64_t panel, int n) {
  const std::int64_t row = panel * kLanes + n;
  return weight.first_row + (row < rows ? row : rows - 1);
}

/// Bytes from one row of codes to the next.
NANSCOPE_FN std::int64_t row_bytes(const ScaledWeight& weight) {
  return weight.codes.format == Format::e2m1 ? weight.codes.stride / 2 : weight.codes.stride;
}

/// Where the codes of a panel's rows begin, at the weight's first column.
NANSCOPE_FN PanelRows scaled_panel_rows(const ScaledWeight& weight, std::int64_t rows, std::int64_t panel,
                                        std::int64_t bytes) {
  const std::int64_t stride = row_bytes(weight);
  PanelRows panel_rows;
  for (int n = 0; n < kLanes; ++n) {
    panel_rows.from[n] =
        static_cast<const char*>(weight.codes.data) + scaled_row(weight, rows, panel, n) * stride + bytes;
  }
  return panel_rows;
}

/// The second scale, applied to lanes of scales.
NANSCOPE_FN F32 with_second(const ScaledWeight& weight, const F32& scale) {
  if (weight.second == SecondScale::none) return scale;
  const F32 second = splat_f32(weight.second_scale);
  return weight.second == SecondScale::divisor ? scale / second : scale * second;
}

/// Scales of one row of blocks, 32 from `first` on, or `count` where that is fewer.
NANSCOPE_CALLED void load_scales(const ScaledWeight& weight, std::int64_t block_row, std::int64_t first,
                                 std::int64_t count, float* scales) {
  store_raw_f32(scales, with_second(weight, load_range(weight.scales, block_row, first, count, 0.0F)), kLanes);
}

/// What the second scale makes of scales that were decoded from e4m3 or e8m0.
template <SecondScale Second>
struct Seconds {
  Register<float> second;
  Register<float> inverse;  ///< of a divisor

  /// A quotient is a product with the inverse, corrected by the remainder, which is exact. That it is rounded as the
  /// quotient is was found true of all mantissas that e4m3 has and all that a divisor may have; powers of two change
  /// nothing while a divisor is_moderate().
  __attribute__((always_inline)) Words operator()(std::int64_t, int, Words scales) const {
    const auto value = reinterpret_cast<Register<float>>(scales);
    if constexpr (Second == SecondScale::multiplier) return reinterpret_cast<Words>(value * second);
    if constexpr (Second == SecondScale::divisor) {
      const Register<float> quotient = value * inverse;
      const Register<float> beyond = detail::fma(quotient, second, -value);
      return reinterpret_cast<Words>(detail::fma(-beyond, inverse, quotient));
    }
    return scales;
  }
};
NANSCOPE_FN bool is_moderate(float divisor) { return divisor > 0x1p-60F && divisor < 0x1p60F; }

/// Scales of kScaleBlocks blocks.
inline constexpr std::int64_t kScaleBlocks = 4 * kWords;

/// Scales of as many rows as a register has, `stride` bytes apart, with the second one applied, as (kScaleBlocks, 32).
template <Format F, class Second>
NANSCOPE_FN void decode_scale_square(const char* from, std::int64_t stride, const Second& second, float* to) {
  Words fours[kFours][4];
  NANSCOPE_UNROLL for (int g = 0; g < kFours; ++g) {
    Words rows[4];
    NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) std::memcpy(&rows[i], from + (4 * g + i) * stride, sizeof(Words));
    transpose_four(rows, fours[g]);
  }
  Words square[kWords];
  NANSCOPE_UNROLL for (int j = 0; j < 4; ++j) {
    Words words[kFours];
    join_fours(fours, j, words);
    NANSCOPE_UNROLL for (int l = 0; l < kFours; ++l) square[4 * l + j] = words[l];
  }
  const bool special = any_special(special_codes<F>(square));
  for (int i = 0; i < kWords; ++i) {
    const auto store = [ to, &second, i ](int k, Words scales) __attribute__((always_inline)) {
      const Words values = second(i, 0, scales);
      std::memcpy(to + (i * kPerWord<F> + k) * kLanes, &values, sizeof(values));
    };
    special ? decode_words<F, false>(square[i], store) : decode_words<F, true>(square[i], store);
  }
}

/// The same of the 32 rows of a panel and of `blocks` blocks.
template <Format F, SecondScale Second>
NANSCOPE_CALLED void decode_scale_squares(const char* from, std::int64_t stride, std::int64_t blocks, float second,
                                          float* values) {
  const Seconds<Second> seconds{F32(second).v[0], F32(1 / second).v[0]};
  for (int part = 0; part < U32::kCount; ++part) {
    for (std::int64_t b = 0; b < blocks; b += kScaleBlocks) {
      decode_scale_square<F>(from + part * kWords * stride + b, stride, seconds, values + b * kLanes + part * kWords);
    }
  }
}

/// Returns whether it could be done.
template <Format F>
NANSCOPE_FN bool decode_scales(const ScaledWeight& weight, const char* from, std::int64_t blocks, float* values) {
  const std::int64_t stride = weight.scales.stride;
  switch (weight.second) {
    case SecondScale::none:
      decode_scale_squares<F, SecondScale::none>(from, stride, blocks, 1, values);
      return true;
    case SecondScale::multiplier:
      decode_scale_squares<F, SecondScale::multiplier>(from, stride, blocks, weight.second_scale, values);
      return true;
    default:
      if (F != Format::e4m3 || kWords < 8 || !is_moderate(weight.second_scale)) return false;
      decode_scale_squares<F, SecondScale::divisor>(from, stride, blocks, weight.second_scale, values);
      return true;
  }
}

/// Scales of whole squares of blocks from `first` on of a panel whose rows have scales of their own, as
/// decode_scales(). Returns whether they are of a format that is decoded like this.
NANSCOPE_FN bool decode_panel_scales(const ScaledWeight& weight, std::int64_t rows, std::int64_t panel,
                                     std::int64_t first, std::int64_t blocks, float* values) {
  if (first < 0 || weight.block.rows != 1 || (panel + 1) * kLanes > rows) return false;
  if (weight.scales.format != Format::e4m3 && weight.scales.format != Format::e8m0) return false;
  const auto* from = element_ptr<const char>(weight.scales, weight.first_row + panel * kLanes, first);
  return weight.scales.format == Format::e4m3 ? decode_scales<Format::e4m3>(weight, from, blocks, values)
                                              : decode_scales<Format::e8m0>(weight, from, blocks, values);
}

/// Scales of the blocks `first` to `first + count` of a panel, as (count, 32) f32. They begin somewhere in `values`,
/// which has room for the next multiple of kScaleBlocks, and in the same place for every panel.
NANSCOPE_CALLED const float* fill_scales(const ScaledWeight& weight, std::int64_t rows, std::int64_t panel,
                                         std::int64_t first, std::int64_t count, float* values) {
  // In whole squares, from so many blocks earlier on as it takes.
  const std::int64_t whole = (count + kScaleBlocks - 1) / kScaleBlocks * kScaleBlocks;
  float* begin = values + (whole - count) * kLanes;
  if (decode_panel_scales(weight, rows, panel, first + count - whole, whole, values)) return begin;
  std::int64_t block_rows[kLanes];
  for (int n = 0; n < kLanes; ++n) block_rows[n] = scaled_row(weight, rows, panel, n) / weight.block.rows;
  alignas(64) float row[kLanes];
  const bool shared = block_rows[0] == block_rows[kLanes - 1];
  for (int n = 0; n < (shared ? 1 : kLanes); ++n) {
    for (std::int64_t b = 0; b < count; ++b) {
      if (b % kLanes == 0) load_scales(weight, block_rows[n], first + b, count - b, row);
      if (shared) {
        store_raw_f32(begin + b * kLanes, splat_f32(row[b % kLanes]), kLanes);
      } else {
        begin[b * kLanes + n] = row[b % kLanes];
      }
    }
  }
  return begin;
}

/// Asks for the scales of `count` blocks of rows of which each has its own.
NANSCOPE_FN void ask_for_scales(const ScaledWeight& weight, std::int64_t first_row, std::int64_t rows,
                                std::int64_t first, std::int64_t count) {
  if (weight.block.rows != 1) return;
  const std::int64_t last = weight.scales.rows - 1;
  const std::int64_t bytes = storage_size(weight.scales.format);
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t row = first_row + n < last ? first_row + n : last;
    const char* from = static_cast<const char*>(weight.scales.data) + (row * weight.scales.stride + first) * bytes;
    for (std::int64_t i = 0; i < count * bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
    __builtin_prefetch(from + count * bytes - 1, 0, 2);
  }
}

/// Weights that are not read in words, k in [first_k, first_k + depth), as (depth, 32) f32 at `slice`.
NANSCOPE_CALLED void gather_scaled(const ScaledWeight& weight, std::int64_t rows, std::int64_t panel,
                                   std::int64_t first_k, std::int64_t depth, float* slice) {
  const bool halves = weight.codes.format == Format::e2m1;
  const std::int64_t stride = row_bytes(weight);
  for (int n = 0; n < kLanes; ++n) {
    const std::int64_t row = scaled_row(weight, rows, panel, n);
    const auto* codes = static_cast<const std::uint8_t*>(weight.codes.data) + row * stride;
    std::int64_t known = -1;
    float scale = 1;
    for (std::int64_t k = 0; k < depth; k += kLanes) {
      const std::int64_t column = weight.first_column + first_k + k;
      const std::int64_t count = depth - k < kLanes ? depth - k : kLanes;
      alignas(64) std::uint8_t some[kLanes] = {};
      alignas(64) float scales[kLanes] = {};
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t block = (column + i) / weight.block.columns;
        if (block != known) {
          alignas(64) float one[kLanes];
          load_scales(weight, row / weight.block.rows, block, 1, one);
          scale = one[0];
          known = block;
        }
        scales[i] = scale;
        const std::uint8_t byte = codes[halves ? (column + i) / 2 : column + i];
        some[i] = halves ? ((column + i) % 2 == 0 ? byte & 15U : byte >> 4U) : byte;
      }
      const F32 values = decode_lanes(weight.codes.format, load_u8(some, kLanes)) * load_f32(scales, kLanes, 0.0F);
      alignas(64) float part[kLanes];
      store_raw_f32(part, values, kLanes);
      for (std::int64_t i = 0; i < count; ++i) slice[(k + i) * kLanes + n] = part[i];
    }
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
