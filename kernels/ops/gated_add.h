#pragma once
/// Gated sum of two branches: out[t, i] = a[t, i] + sigmoid(gate[t]) * b[t, i], as Qwen2-MoE adds the expert that all
/// tokens share to those that the router chose.
///
/// Roundings: sigmoid below 1 ulp (kernels/math), an f32 product, an f32 sum, then one to out's format. NaN and Inf are
/// IEEE's: a NaN gate makes its whole row NaN, a gate of -Inf leaves b out unless b is Inf or NaN.
/// May run in place on a or b.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: a, b, out (T, D); gate (T, 1); formats f32, f16 or bf16, each its own.
struct GatedAddArgs {
  TensorView a;
  TensorView b;
  TensorView gate;
  TensorView out;
};

inline Status check(const GatedAddArgs& args) {
  ArgsCheck check("gated_add");
  check.floats("a", args.a).floats("b", args.b).floats("gate", args.gate).floats("out", args.out);
  check.shape("a", args.a, args.out.rows, args.out.columns).shape("b", args.b, args.out.rows, args.out.columns);
  check.shape("gate", args.gate, args.out.rows, 1);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/sigmoid.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct GatedAdd {
  using Args = GatedAddArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const F32 gate = splat_f32(broadcast(sigmoid(load(args.gate, row, 0, 0.0F)), 0));
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      const F32 added = gate * load(args.b, row, column, 0.0F);
      store(args.out, row, column, load(args.a, row, column, 0.0F) + added);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
