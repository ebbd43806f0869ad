#pragma once
/// Sum of each column, the gradient of a bias: out[d] = sum_t x[t, d].
///
/// Order: t ascending from +0, one f32 rounding a term; then one to out's format. Columns of -0 alone give +0.
/// NaN, Inf: IEEE's, and in their column alone.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D), out (1, D); formats f32, f16 or bf16, each its own.
struct ColumnSumArgs {
  TensorView x;
  TensorView out;
};

inline Status check(const ColumnSumArgs& args) {
  return ArgsCheck("column_sum")
      .floats("x", args.x)
      .floats("out", args.out)
      .shape("out", args.out, 1, args.x.columns)
      .done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct ColumnSum {
  using Args = ColumnSumArgs;

  /// Warp = 32 columns.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return div_up(args.x.columns, kLanes); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.rows * kLanes; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t column = warp * kLanes;
    F32 total = splat_f32(0.0F);
    for (std::int64_t row = 0; row < args.x.rows; ++row) total = total + load(args.x, row, column, 0.0F);
    store(args.out, 0, column, total);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
