#pragma once
/// Block quantisation: every `block` columns of a row share a scale that is itself stored in 8 bits (OCP MX 1.0: blocks
/// of 32 under e8m0; NVFP4: blocks of 16 under e4m3, and one f32 scale for the tensor above them).
///
/// Order: none, a maximum has none. Roundings: scale = amax / largest finite code / tensor_scale in f32, two roundings,
/// then one to the scale's format (e8m0 up, e4m3 to nearest even); x / (stored scale * tensor_scale) in f32, two
/// roundings, then one to the code, saturating. Under a stored scale of 0 codes are 0.
/// NaN: one in a block makes its scale NaN, and with it what is read of the whole block.
/// Traps: rows of scales are wider than there are blocks, for tiles of 4: without zero_padding the rest keeps what the
/// memory held (vLLM PR #38148). scale_overflow = overflow makes the NaN 0x7F of an e4m3 scale beyond 448 (SGLang PR
/// #22927). ScalePacking::unmasked shifts four f32 scales into one word and trusts them to be powers of two: else
/// mantissa bits of one run into the exponents before it (SGLang PR #25733); codes are made with the f32 scales.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

enum class ScalePacking : std::uint8_t { rounded, unmasked };

/// Shapes: x (T, D) f32, f16 or bf16; codes (T, D) e4m3, e5m2, e3m2, e2m3, e2m1 or int8; scales (T, S), e8m0 or e4m3,
/// S >= D / block rounded up. Unmasked packing is for e8m0.
struct BlockQuantiseArgs {
  TensorView x;
  TensorView codes;
  TensorView scales;
  std::int64_t block = 32;
  float tensor_scale = 1;
  ScalePacking packing = ScalePacking::rounded;
  Overflow scale_overflow = Overflow::saturate;
  bool zero_padding = true;
};

inline Status check(const BlockQuantiseArgs& args) {
  ArgsCheck check("block_quantise");
  check.floats("x", args.x).shape("codes", args.codes, args.x.rows, args.x.columns);
  check.format("codes", args.codes,
               {Format::e4m3, Format::e5m2, Format::e3m2, Format::e2m3, Format::e2m1, Format::int8});
  check.format("scales", args.scales, {Format::e8m0, Format::e4m3});
  check.that(args.scales.rows == args.x.rows, "a row of scales for every row of x");
  check.that(args.block > 0 && args.scales.columns >= (args.x.columns + args.block - 1) / args.block,
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

  NANSCOPE_LANE float largest(Format format) {
    switch (format) {
      case Format::e4m3:
        return 448.0F;
      case Format::e5m2:
        return 57344.0F;
      case Format::e3m2:
        return 28.0F;
      case Format::e2m3:
        return 7.5F;
      case Format::e2m1:
        return 6.0F;
      default:
        return 127.0F;
    }
  }
  NANSCOPE_LANE std::int64_t block_end(const Args& args, std::int64_t block) {
    const std::int64_t end = (block + 1) * args.block;
    return end < args.x.columns ? end : args.x.columns;
  }
  /// The block's scale before it is stored, in every lane; 0 behind the last block.
  NANSCOPE_LANE F32 real_scale(const Args& args, std::int64_t row, std::int64_t block) {
    F32 lanes = splat_f32(0.0F);
    const std::int64_t end = block_end(args, block);
    for (std::int64_t column = block * args.block; column < end; column += kLanes) {
      lanes = max_propagate(lanes, abs(load_range(args.x, row, column, end - column, 0.0F)));
    }
    const F32 amax = splat_f32(max_propagate_across(lanes));
    return amax / splat_f32(largest(args.codes.format)) / splat_f32(args.tensor_scale);
  }
  /// The code of scale `j` of a group.
  NANSCOPE_LANE U32 stored_scale(const Args& args, const F32 (&real)[kGroup], int j) {
    if (args.packing == ScalePacking::unmasked) {
      const U32 word =
          (raw_bits(real[0]) >> 23) | (raw_bits(real[1]) >> 15) | (raw_bits(real[2]) >> 7) | (raw_bits(real[3]) << 1);
      return (word >> (8 * j)) & splat_u32(0xff);
    }
    if (args.scales.format == Format::e8m0) {
      return encode_e8m0_bits(raw_bits(real[j]), E8m0Rounding::up, args.scale_overflow);
    }
    return encode_lanes(args.scales.format, real[j], args.scale_overflow);
  }
  NANSCOPE_LANE void quantise(const Args& args, std::int64_t row, std::int64_t block, const F32& scale) {
    const std::int64_t end = block_end(args, block);
    const F32 whole = scale * splat_f32(args.tensor_scale);
    const Mask none = whole == splat_f32(0.0F);
    for (std::int64_t column = block * args.block; column < end; column += kLanes) {
      const F32 scaled = load_range(args.x, row, column, end - column, 0.0F) / whole;
      const F32 value = select(none, splat_f32(0.0F), scaled);
      store_code_range(args.codes, row, column, end - column,
                       encode_lanes(args.codes.format, value, Overflow::saturate));
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t blocks = div_up(args.x.columns, args.block);
    for (std::int64_t group = 0; group < args.scales.columns; group += kGroup) {
      F32 real[kGroup];
      for (int j = 0; j < kGroup; ++j) real[j] = real_scale(args, row, group + j);
      for (int j = 0; j < kGroup && group + j < args.scales.columns; ++j) {
        const std::int64_t block = group + j;
        if (block >= blocks) {
          if (args.zero_padding) store_code_range(args.scales, row, block, 1, splat_u32(0));
          continue;
        }
        const U32 code = stored_scale(args, real, j);
        store_code_range(args.scales, row, block, 1, code);
        const bool as_f32 = args.packing == ScalePacking::unmasked;
        quantise(args, row, block, as_f32 ? real[j] : decode_lanes(args.scales.format, code));
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
