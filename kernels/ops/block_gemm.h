#pragma once
/// Matrix product of block-scaled rows, as block-scaled matrix units compute it: out[t, n] = second * sum over
/// blocks b of scale[t, b] * (sum over k in b of code[t, k] * weight[n, k]) (+ bias[n]), or sum / second where the
/// second scale is a divisor.
///
/// Order: within a block one fma chain, k ascending from +0; across blocks another, acc = fma(scale, partial, acc), b
/// ascending from +0; then acc * second (or / second), one add for the bias, one rounding to out's format. Tiling never
/// changes it. NaN, Inf: IEEE's. Traps: with read_padding the chain runs over all columns of scales, also those behind
/// the last block. What is summed there is 0, and 0 * NaN is NaN: what lies in the padding decides about every output
/// (vLLM PR #38148).
#include "core/blocks/block_format.h"
#include "kernels/check.h"
#include "kernels/ops/gemm.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: codes (T, K) of the format's elements; scales (T, S) of its scales, S >= K / block rounded up; packed:
/// the weight as GemmArgs::packed has it; bias (1, N) f32 or not given; out (T, N) f32, f16 or bf16.
struct BlockGemmArgs {
  TensorView codes;
  TensorView scales;
  TensorView packed;
  TensorView bias;
  TensorView out;
  BlockFormat format;
  float second = 1;
  bool read_padding = false;
};

inline Status check(const BlockGemmArgs& args) {
  ArgsCheck check("block_gemm");
  check.floats("out", args.out);
  check.format("codes", args.codes,
               {Format::e4m3, Format::e5m2, Format::e3m2, Format::e2m3, Format::e2m1, Format::int8});
  check.format("scales", args.scales, {Format::e8m0, Format::e4m3, Format::f32, Format::f16, Format::bf16});
  check.that(args.codes.format == args.format.element && args.scales.format == args.format.scale,
             "codes and scales of the block format");
  check.that(args.format.block.rows == 1 && args.format.reading == ScaleReading::plain &&
                 args.format.second != SecondScale::amax,
             "a block format of one row, whose scales are read as numbers");
  check.shape("codes", args.codes, args.out.rows, args.codes.columns);
  check.that(args.scales.rows == args.out.rows, "a row of scales for every row of codes");
  const std::int64_t width = args.format.block.columns;
  check.that(width > 0 && args.scales.columns >= (args.codes.columns + width - 1) / width, "a scale for every block");
  const std::int64_t panels = (args.out.columns + kPanelColumns - 1) / kPanelColumns;
  check.format("packed", args.packed, {Format::f32});
  check.shape("packed", args.packed, panels * args.codes.columns, kPanelColumns);
  check.that(args.packed.stride == kPanelColumns, "packed panels without gaps: a row stride of 32");
  if (args.bias.given()) check.format("bias", args.bias, {Format::f32}).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct BlockGemm {
  using Args = BlockGemmArgs;

  NANSCOPE_HOST std::int64_t panels(const Args& args) { return div_up(args.out.columns, kPanelColumns); }
  /// Warp = a row of one panel.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * panels(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.codes.columns * kPanelColumns / 8; }

  /// The 32 outputs of a panel over the columns of one block; 0 behind the last.
  NANSCOPE_LANE F32 partial(const Args& args, std::int64_t row, const float* panel, std::int64_t block) {
    const std::int64_t last = (block + 1) * args.format.block.columns;
    const std::int64_t end = last < args.codes.columns ? last : args.codes.columns;
    F32 sum = splat_f32(0.0F);
    for (std::int64_t first = block * args.format.block.columns; first < end; first += kLanes) {
      const F32 x = decode_lanes(args.codes.format, load_code_range(args.codes, row, first, end - first));
      const int count = static_cast<int>(end - first < kLanes ? end - first : kLanes);
      for (int i = 0; i < count; ++i) {
        const F32 weight = load_f32(panel + (first + i) * kPanelColumns, kLanes, 0.0F);
        sum = fma(splat_f32(broadcast(x, i)), weight, sum);
      }
    }
    return sum;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / panels(args);
    const std::int64_t panel = warp % panels(args);
    const std::int64_t used = div_up(args.codes.columns, args.format.block.columns);
    const std::int64_t blocks = args.read_padding ? args.scales.columns : used;
    const float* weights = static_cast<const float*>(args.packed.data) + panel * args.codes.columns * kPanelColumns;
    F32 acc = splat_f32(0.0F);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const F32 scale = decode_lanes(args.scales.format, load_code_range(args.scales, row, block, 1));
      acc = fma(splat_f32(broadcast(scale, 0)), partial(args, row, weights, block), acc);
    }
    const F32 second = splat_f32(args.second);
    acc = args.format.second == SecondScale::divisor ? acc / second : acc * second;
    const std::int64_t column = panel * kPanelColumns;
    const std::int64_t left = args.out.columns - column;
    if (args.bias.given()) acc = acc + load_range(args.bias, 0, column, left, 0.0F);
    store_range(args.out, row, column, left, acc);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
