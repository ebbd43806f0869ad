#pragma once
/// Residual add: out = a + factor * b, one rounding in f32 for the product, which a factor of 1 leaves as b is, and one
/// for the sum, then one to out's format.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: a, b, out (T, D); formats f32, f16 or bf16, each its own.
struct ResidualAddArgs {
  TensorView a;
  TensorView b;
  TensorView out;
  float factor = 1;
};

inline Status check(const ResidualAddArgs& args) {
  return ArgsCheck("residual_add")
      .floats("out", args.out)
      .floats("a", args.a)
      .floats("b", args.b)
      .shape("a", args.a, args.out.rows, args.out.columns)
      .shape("b", args.b, args.out.rows, args.out.columns)
      .done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct ResidualAdd {
  using Args = ResidualAddArgs;

  /// Warps needed: one a row. Warps of one launch are independent and may run in any order.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  /// Elements a warp touches, for the device to decide whether threads pay.
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      const F32 a = load(args.a, row, column, -0.0F);
      const F32 b = load(args.b, row, column, -0.0F);
      store(args.out, row, column, a + splat_f32(args.factor) * b);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
