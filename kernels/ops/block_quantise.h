#pragma once
/// Block quantisation: a run of a row's columns shares a scale that is itself stored in few bits. How is said by a
/// BlockFormat (core/blocks): OCP MX 1.0 rounds scales down (6.3) and clips, cuBLAS and Transformer Engine round them
/// up (ScaleRule::rceil), NVFP4 has e4m3 scales of 16 elements and one f32 for the tensor above them.
///
/// Order: none, a maximum has none. Roundings: as core/blocks/block_scale.h has them, one source for this op and for
/// files; then x / whole, or x times its reciprocal, in f32, and one rounding to the code, saturating. Under a whole
/// scale of 0 codes are 0.
/// NaN, Inf in a block: as the format says (BadBlock).
/// Traps: rows of scales are wider than there are blocks, for tiles of 4: without zero_padding the rest keeps what the
/// memory held (vLLM PR #38148). scale_overflow = overflow makes the NaN 0x7F of an e4m3 scale beyond 448 (SGLang PR
/// #22927). ScalePacking::unmasked shifts four f32 scales into one word and trusts them to be powers of two: else
/// mantissa bits of one run into the exponents before it (SGLang PR #25733); codes are made with the f32 scales.
#include "core/blocks/block_element.h"
#include "core/blocks/block_scale.h"
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D) f32, f16 or bf16; codes (T, D) of the format's elements, one a byte; scales (T, S) of its scales,
/// S >= D / block rounded up, in rows. The format's packing and layout are for files and not looked at. Unmasked
/// packing is for e8m0.
struct BlockQuantiseArgs {
  TensorView x;
  TensorView codes;
  TensorView scales;
  BlockFormat format;
  float second = 1;        ///< scale of the tensor, see SecondScale
  std::uint32_t seed = 0;  ///< of Ties::stochastic
  ScalePacking packing = ScalePacking::rounded;
  Overflow scale_overflow = Overflow::saturate;
  bool zero_padding = true;
};

inline Status check(const BlockQuantiseArgs& args) {
  ArgsCheck check("block_quantise");
  const BlockFormat& f = args.format;
  check.floats("x", args.x).shape("codes", args.codes, args.x.rows, args.x.columns);
  check.format("codes", args.codes,
               {Format::e4m3, Format::e5m2, Format::e3m2, Format::e2m3, Format::e2m1, Format::int8});
  check.format("scales", args.scales, {Format::e8m0, Format::e4m3, Format::f32, Format::f16, Format::bf16});
  check.that(args.codes.format == f.element && args.scales.format == f.scale, "codes and scales of the block format");
  check.that(f.block.rows == 1 && f.rule != ScaleRule::signed_extreme && f.scaling != Scaling::bounds &&
                 !f.four_over_six && f.zero_sign == ZeroSign::kept,
             "a block format of one row that is rounded element by element");
  check.that(args.scales.rows == args.x.rows, "a row of scales for every row of x");
  check.that(f.block.columns > 0 && args.scales.columns >= (args.x.columns + f.block.columns - 1) / f.block.columns,
             "a scale for every block");
  check.that(args.packing == ScalePacking::rounded || args.scales.format == Format::e8m0,
             "scales in e8m0 when they are packed unmasked");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct BlockQuantise {
  using Args = BlockQuantiseArgs;

  static constexpr int kGroup = 4;  ///< scales of a word

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.x.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.columns * 8; }

  NANSCOPE_LANE std::int64_t block_end(const Args& args, std::int64_t block) {
    const std::int64_t end = (block + 1) * args.format.block.columns;
    return end < args.x.columns ? end : args.x.columns;
  }
  /// The block's largest magnitude; 0 behind the last block.
  NANSCOPE_LANE float amax(const Args& args, std::int64_t row, std::int64_t block) {
    F32 lanes = splat_f32(0.0F);
    const std::int64_t end = block_end(args, block);
    for (std::int64_t column = block * args.format.block.columns; column < end; column += kLanes) {
      lanes = max_propagate(lanes, abs(load_range(args.x, row, column, end - column, 0.0F)));
    }
    return max_propagate_across(lanes);
  }
  NANSCOPE_LANE std::uint8_t nan_code(Format element) {
    std::uint8_t code = 0;
    with_format(element, [&](auto format) NANSCOPE_INLINE_LAMBDA {
      constexpr CodecParams p = kCodecParams<format()>;
      code = static_cast<std::uint8_t>(p.nan_code);
    });
    return code;
  }
  /// A call: its branches are long, and once a block is seldom.
  NANSCOPE_CALLED BlockScale rounded_scale(const Args& args, float amax) {
    const BlockFormat& f = args.format;
    const std::uint8_t nan = f.nan_code >= 0 ? static_cast<std::uint8_t>(f.nan_code) : nan_code(f.element);
    return block_scale(f, amax, args.second, nan, 1.0F, args.scale_overflow);
  }
  /// Byte `j` of the word that unmasked shifts of four scales make, and codes made with the f32 scale.
  NANSCOPE_LANE BlockScale unmasked_scale(const Args& args, const float (&amaxes)[kGroup], int j) {
    U32 word = splat_u32(0);
    F32 own = splat_f32(0.0F);
    for (int i = 0; i < kGroup; ++i) {
      const F32 real = splat_f32(amaxes[i]) / splat_f32(args.format.largest) / splat_f32(args.second);
      const U32 seen = bits(real);
      word = word | (i == 3 ? seen << 1 : seen >> (23 - 8 * i));
      if (i == j) own = real;
    }
    BlockScale scale;
    scale.code = broadcast((word >> (8 * j)) & splat_u32(0xff), 0);
    scale.factor = broadcast(own * splat_f32(args.second), 0);
    scale.filled = scale.factor == 0.0F;
    return scale;
  }
  NANSCOPE_LANE U32 rounded_codes(const Args& args, std::int64_t row, std::int64_t column, const F32& scaled) {
    if (args.format.ties == Ties::even) return encode_lanes(args.codes.format, scaled, Overflow::saturate);
    const U32 index = lane_id() + splat_u32(static_cast<std::uint32_t>(row * args.x.columns + column));
    U32 code = splat_u32(0);
    with_format(args.codes.format, [&](auto format) NANSCOPE_INLINE_LAMBDA {
      constexpr CodecParams p = kCodecParams<format()>;
      code = encode_block_element(p, args.format.ties, raw_bits(scaled), block_draw(index, args.seed));
    });
    return code;
  }
  NANSCOPE_LANE U32 codes_of(const Args& args, std::int64_t row, std::int64_t column, const F32& scaled) {
    const U32 code = rounded_codes(args, row, column, scaled);
    if (args.format.nan_code < 0) return code;
    return select(is_nan(scaled), splat_u32(static_cast<std::uint32_t>(args.format.nan_code)), code);
  }
  NANSCOPE_LANE void quantise(const Args& args, std::int64_t row, std::int64_t block, const BlockScale& scale) {
    const std::int64_t end = block_end(args, block);
    const F32 factor = splat_f32(scale.factor);
    const U32 fill = splat_u32(scale.fill);
    for (std::int64_t column = block * args.format.block.columns; column < end; column += kLanes) {
      const F32 x = load_range(args.x, row, column, end - column, 0.0F);
      const F32 scaled = scale.multiply ? x * factor : x / factor;
      const U32 codes = scale.filled ? fill : codes_of(args, row, column, scaled);
      store_code_range(args.codes, row, column, end - column, codes);
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t blocks = div_up(args.x.columns, args.format.block.columns);
    for (std::int64_t group = 0; group < args.scales.columns; group += kGroup) {
      float amaxes[kGroup];
      for (int j = 0; j < kGroup; ++j) amaxes[j] = amax(args, row, group + j);
      for (int j = 0; j < kGroup && group + j < args.scales.columns; ++j) {
        const std::int64_t block = group + j;
        if (block >= blocks) {
          if (args.zero_padding) store_code_range(args.scales, row, block, 1, splat_u32(0));
          continue;
        }
        const bool unmasked = args.packing == ScalePacking::unmasked;
        const BlockScale scale = unmasked ? unmasked_scale(args, amaxes, j) : rounded_scale(args, amaxes[j]);
        store_code_range(args.scales, row, block, 1, splat_u32(scale.code));
        quantise(args, row, block, scale);
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
