#pragma once
/// Sum of the squares of each row, for the norm of a gradient: out[t] = sum_d x[t, d]^2.
///
/// Order: lane l adds channels l, l + 32, ... ascending from +0, then the butterfly 16 8 4 2 1, all in f64, in which a
/// square of an f32 is exact; the sum is rounded once, to f32.
/// NaN stays NaN, Inf gives Inf. Trap: f32 ends where the norm is 1.8e19: a larger sum is Inf although every x is
/// finite.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D) f32, f16 or bf16; out (T, 1) f32.
struct SumOfSquaresArgs {
  TensorView x;
  TensorView out;
};

inline Status check(const SumOfSquaresArgs& args) {
  return ArgsCheck("sum_of_squares")
      .floats("x", args.x)
      .format("out", args.out, {Format::f32})
      .shape("out", args.out, args.x.rows, 1)
      .done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct SumOfSquares {
  using Args = SumOfSquaresArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.x.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.columns; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    F64 lanes = splat_f64(0.0);
    for (std::int64_t column = 0; column < args.x.columns; column += kLanes) {
      const F64 x = to_f64(load(args.x, row, column, 0.0F));
      lanes = lanes + x * x;
    }
    store_range(args.out, row, 0, 1, to_f32(splat_f64(sum(lanes))));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
