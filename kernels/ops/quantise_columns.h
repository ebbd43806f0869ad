#pragma once
/// Block quantisation down the columns: `block.rows` consecutive rows of one column share a scale. Matrix units want
/// the values of attention so, whose products run over tokens (OCP MX 1.0, 5.1: a block lies along the inner
/// dimension).
///
/// Blocks begin at multiples of block.rows; the last may be ragged. Order, roundings, NaN and Inf: those of
/// block_quantise.h. Trap: a block's scale is one of all its rows, so where rows are tokens, an earlier one is rounded
/// by what a later one holds.
#include "kernels/check.h"
#include "kernels/ops/column_scales.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (S, D) f32, f16 or bf16; codes (S, D) of the format's elements, one a byte; scales (S / block.rows rounded
/// up, D) of its scales.
struct QuantiseColumnsArgs {
  TensorView x;
  TensorView codes;
  TensorView scales;
  BlockFormat format;
  float second = 1;        ///< scale of the tensor, see SecondScale
  std::uint32_t seed = 0;  ///< of Ties::stochastic
};

inline Status check(const QuantiseColumnsArgs& args) {
  ArgsCheck check("quantise_columns");
  const BlockFormat& f = args.format;
  check.floats("x", args.x).shape("codes", args.codes, args.x.rows, args.x.columns);
  check.that(args.codes.format == f.element && args.scales.format == f.scale, "codes and scales of the block format");
  check.that(f.block.rows > 0 && f.block.columns == 1, "blocks of one column");
  check.that(rounds_elementwise(f), kElementwise);
  if (f.block.rows > 0) {
    check.shape("scales", args.scales, (args.x.rows + f.block.rows - 1) / f.block.rows, args.x.columns);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct QuantiseColumns {
  using Args = QuantiseColumnsArgs;

  NANSCOPE_HOST std::int64_t panels(const Args& args) { return div_up(args.x.columns, kLanes); }
  /// Warp = the blocks of 32 columns, a lane each.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.scales.rows * panels(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.format.block.rows * kLanes * 8; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t block = warp / panels(args);
    const std::int64_t column = warp % panels(args) * kLanes;
    const std::int64_t left = args.x.columns - column;
    const std::int64_t first = block * args.format.block.rows;
    const std::int64_t all = first + args.format.block.rows;
    const std::int64_t end = all < args.x.rows ? all : args.x.rows;
    F32 amax = splat_f32(0.0F);
    for (std::int64_t row = first; row < end; ++row) {
      amax = max_propagate(amax, abs(load_range(args.x, row, column, left, 0.0F)));
    }
    const LaneScales scales = column_scales(args.format, args.second, amax);
    store_code_range(args.scales, block, column, left, scales.code);
    for (std::int64_t row = first; row < end; ++row) {
      const F32 x = load_range(args.x, row, column, left, 0.0F);
      const U32 index = lane_id() + splat_u32(static_cast<std::uint32_t>(row * args.x.columns + column));
      store_code_range(args.codes, row, column, left, element_codes(args.format, scales, x, index, args.seed));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
