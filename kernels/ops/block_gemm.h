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

/// Shapes: codes (T, K) of the format's elements; scales (T, S) of its scales, S >= K / block rounded up; weight,
/// packed or scaled: the weight in one of the forms that GemmArgs has; bias (1, N) or not given; out (T, N) f32, f16 or
/// bf16.
struct BlockGemmArgs {
  TensorView codes;
  TensorView scales;
  TensorView packed;
  TensorView bias;
  TensorView out;
  BlockFormat format;
  float second = 1;
  bool read_padding = false;
  TensorView weight = {};
  ScaledWeight scaled = {};
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
  check_weight(check, args, args.out.columns, args.codes.columns);
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// The weights of a panel, one k after another. On a CPU pieces of them are decoded first, for all rows of the warp.
struct BlockPanel {
#if defined(__CUDACC__)
  static constexpr std::int64_t kRows = 1;
  NANSCOPE_FN F32 load(const GemmArgs& args, std::int64_t panel, std::int64_t k) { return weights_at(args, panel, k); }
#else
  static constexpr std::int64_t kRows = 8;
#endif
  static constexpr std::int64_t kDepth = 256;
};

struct BlockGemm {
  using Args = BlockGemmArgs;

  NANSCOPE_HOST std::int64_t panels(const Args& args) { return div_up(args.out.columns, kPanelColumns); }
  /// Warp = some rows of one panel.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return div_up(args.out.rows, BlockPanel::kRows) * panels(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    const std::int64_t rows = args.out.rows < BlockPanel::kRows ? args.out.rows : BlockPanel::kRows;
    return rows * args.codes.columns * kPanelColumns / 8;
  }

  NANSCOPE_LANE GemmArgs weight_of(const Args& args) {
    GemmArgs weight{};
    weight.x.columns = args.codes.columns;
    weight.weight = args.weight;
    weight.packed = args.packed;
    weight.out.columns = args.out.columns;
    weight.scaled = args.scaled;
    return weight;
  }

  /// Where the chains of a row have come to.
  struct Chains {
    F32 block = splat_f32(0.0F);  ///< of the block that is summed
    F32 all = splat_f32(0.0F);
  };

  NANSCOPE_LANE void add_block(const Args& args, std::int64_t row, std::int64_t block, Chains& chains) {
    const F32 scale = decode_lanes(args.scales.format, load_code_range(args.scales, row, block, 1));
    chains.all = fma(splat_f32(broadcast(scale, 0)), chains.block, chains.all);
    chains.block = splat_f32(0.0F);
  }

  /// Columns [first, end) of a row. `load` gives the weights of a column.
  template <class Load>
  NANSCOPE_LANE void add_columns(const Args& args, std::int64_t row, std::int64_t first, std::int64_t end,
                                 const Load& load, Chains& chains) {
    const std::int64_t width = args.format.block.columns;
    while (first < end) {
      const std::int64_t block = first / width;
      std::int64_t last = (block + 1) * width;
      const bool ends = last <= end || end == args.codes.columns;
      if (last > end) last = end;
      F32 sum = chains.block;  // in registers: through memory each fma would wait for the store before
      for (; first < last; first += kLanes) {
        const F32 x = decode_lanes(args.codes.format, load_code_range(args.codes, row, first, last - first));
        const int count = static_cast<int>(last - first < kLanes ? last - first : kLanes);
        for (int i = 0; i < count; ++i) sum = fma(splat_f32(broadcast(x, i)), load(first + i), sum);
      }
      chains.block = sum;
      first = last;
      if (ends) add_block(args, row, block, chains);
    }
  }

  NANSCOPE_LANE void finish(const Args& args, std::int64_t row, std::int64_t panel, Chains& chains) {
    const std::int64_t used = div_up(args.codes.columns, args.format.block.columns);
    for (std::int64_t block = used; args.read_padding && block < args.scales.columns; ++block) {
      add_block(args, row, block, chains);
    }
    const F32 second = splat_f32(args.second);
    F32 acc = args.format.second == SecondScale::divisor ? chains.all / second : chains.all * second;
    const std::int64_t column = panel * kPanelColumns;
    const std::int64_t left = args.out.columns - column;
    if (args.bias.given()) acc = acc + load_range(args.bias, 0, column, left, 0.0F);
    store_range(args.out, row, column, left, acc);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t first_row = warp / panels(args) * BlockPanel::kRows;
    const std::int64_t panel = warp % panels(args);
    const std::int64_t left = args.out.rows - first_row;
    const std::int64_t rows = left < BlockPanel::kRows ? left : BlockPanel::kRows;
    const GemmArgs weight = weight_of(args);
    Chains chains[BlockPanel::kRows];
    for (std::int64_t first = 0; first < args.codes.columns; first += BlockPanel::kDepth) {
      const std::int64_t next = first + BlockPanel::kDepth;
      const std::int64_t end = next < args.codes.columns ? next : args.codes.columns;
#if defined(__CUDACC__)
      const auto load = [&](std::int64_t k) NANSCOPE_INLINE_LAMBDA { return BlockPanel::load(weight, panel, k); };
#else
      alignas(64) float slice[BlockPanel::kDepth * kLanes];
      const float* weights = panel_weights(weight, panel, first, end - first, slice);
      const auto load = [weights, first](std::int64_t k)
                            NANSCOPE_INLINE_LAMBDA { return load_f32(weights + (k - first) * kLanes, kLanes, 0.0F); };
#endif
      for (std::int64_t r = 0; r < rows; ++r) add_columns(args, first_row + r, first, end, load, chains[r]);
    }
    for (std::int64_t r = 0; r < rows; ++r) finish(args, first_row + r, panel, chains[r]);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
