#pragma once
/// What codes under block scales stand for: out = code value x scale, or x (scale x second), (scale / second) where the
/// format has a second scale.
///
/// Order: none. Roundings: one for a second scale, one for the product, one to out's format. NaN: a scale that is NaN
/// makes all of its block NaN.
#include "kernels/check.h"
#include "kernels/ops/column_scales.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: codes (T, D); scales, one a block: (T / block.rows, at least D / block.columns), both rounded up; out (T, D)
/// f32, f16 or bf16. Blocks are of one row or of one column.
struct BlockDequantiseArgs {
  TensorView codes;
  TensorView scales;
  TensorView out;
  BlockFormat format;
  float second = 1;
};

inline Status check(const BlockDequantiseArgs& args) {
  ArgsCheck check("block_dequantise");
  const BlockFormat& f = args.format;
  check.floats("out", args.out).shape("codes", args.codes, args.out.rows, args.out.columns);
  check.that(args.codes.format == f.element && args.scales.format == f.scale, "codes and scales of the block format");
  check.that(f.block.rows > 0 && f.block.columns > 0 && (f.block.rows == 1 || f.block.columns == 1),
             "blocks of one row or of one column");
  check.that(f.reading == ScaleReading::plain && f.second != SecondScale::amax,
             "a block format whose scales are read as numbers");
  check.that(f.block.rows > 0 && args.scales.rows == (args.out.rows + f.block.rows - 1) / f.block.rows,
             "a row of scales for every row of blocks");
  check.that(f.block.columns > 0 && args.scales.columns >= (args.out.columns + f.block.columns - 1) / f.block.columns,
             "a scale for every block");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct BlockDequantise {
  using Args = BlockDequantiseArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 4; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t scale_row = row / args.format.block.rows;
    const std::int64_t width = args.format.block.columns;
    const bool own = width == 1;  // each lane has a scale of its own
    const std::int64_t step = own ? kLanes : width;
    for (std::int64_t first = 0; first < args.out.columns; first += step) {
      const std::int64_t end = first + step < args.out.columns ? first + step : args.out.columns;
      const U32 codes = load_code_range(args.scales, scale_row, own ? first : first / width, own ? end - first : 1);
      const F32 whole = whole_scale(args.format, own ? codes : splat_u32(broadcast(codes, 0)), args.second);
      for (std::int64_t column = first; column < end; column += kLanes) {
        const U32 code = load_code_range(args.codes, row, column, end - column);
        store_range(args.out, row, column, end - column, decode_lanes(args.format.element, code) * whole);
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
