#pragma once
/// Gradients of the gated sum out = a + sigmoid(gate) * b (kernels/ops/gated_add.h) for b and gate; that of a is dout
/// itself:
///   b_out[t, i] = dout[t, i] * s,  gate_out[t] = (sum_i dout[t, i] b[t, i]) * (s * r),
///   s = sigmoid(gate[t]), r = sigmoid(-gate[t]), which is 1 - s without its cancellation
///
/// Order of the sum: lane l adds channels l, l + 32, ... ascending, products fused with their sums, then the butterfly
/// 16 8 4 2 1. Other roundings: f32, one an operation as written, sigmoid at most 0.50000001 ulp, then one to each
/// output's format. b_out may be dout.
/// NaN, Inf: IEEE's, in their row; a NaN of b reaches its row's gate alone. Trap: a gate of +-Inf has a gradient of
/// (sum) * 0, which is NaN where the sum is Inf.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: b, dout, b_out (T, D); gate, gate_out (T, 1); formats f32, f16 or bf16, each its own.
struct GatedAddGradientArgs {
  TensorView b;
  TensorView gate;
  TensorView dout;
  TensorView b_out;
  TensorView gate_out;
};

inline Status check(const GatedAddGradientArgs& args) {
  ArgsCheck check("gated_add_gradient");
  const TensorView& out = args.b_out;
  check.floats("b", args.b).floats("gate", args.gate).floats("dout", args.dout);
  check.floats("b_out", out).floats("gate_out", args.gate_out);
  check.shape("b", args.b, out.rows, out.columns).shape("dout", args.dout, out.rows, out.columns);
  check.shape("gate", args.gate, out.rows, 1).shape("gate_out", args.gate_out, out.rows, 1);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/sigmoid.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct GatedAddGradient {
  using Args = GatedAddGradientArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.b_out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.b_out.columns * 2; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const F32 gate = splat_f32(broadcast(load(args.gate, row, 0, 0.0F), 0));
    const F32 s = sigmoid(gate);
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t column = 0; column < args.b_out.columns; column += kLanes) {
      const Mask inside = lanes_below(args.b_out.columns - column);
      const F32 dout = load(args.dout, row, column, 0.0F);
      lanes = select(inside, fma(dout, load(args.b, row, column, 0.0F), lanes), lanes);
      store(args.b_out, row, column, dout * s);
    }
    store(args.gate_out, row, 0, splat_f32(sum(lanes)) * (s * sigmoid(-gate)));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
