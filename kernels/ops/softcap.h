#pragma once
/// Soft cap: out = cap * tanh(x / cap), which keeps logits within (-cap, cap) (Gemma 2, section 2).
///
/// Roundings: an f32 division, tanh below 1 ulp (kernels/math), an f32 product, then one to out's format. NaN stays
/// NaN, Inf becomes cap, -0 stays. May run in place. Trap: an infinite logit leaves as a large finite one.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, D); formats f32, f16 or bf16, each its own.
struct SoftcapArgs {
  TensorView x;
  TensorView out;
  float cap = 30.0F;
};

inline Status check(const SoftcapArgs& args) {
  ArgsCheck check("softcap");
  check.floats("x", args.x).floats("out", args.out).shape("x", args.x, args.out.rows, args.out.columns);
  check.that(args.cap > 0.0F, "a cap above 0");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/softcap.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Softcap {
  using Args = SoftcapArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 8; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      store(args.out, row, column, softcap(load(args.x, row, column, 0.0F), args.cap));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
