#pragma once
/// Gradient of the soft cap y = cap * tanh(x / cap) for x, by what it put out: dout * (1 - (y / cap)^2), as
/// dout * ((1 - r) * (1 + r)) with r = y / cap, in which no square is rounded (Gemma 2, section 2, differentiated).
///
/// Roundings: f32, one an operation, then one to out's format. NaN stays NaN. At the cap itself it is dout * 0: what
/// was cut off has no gradient. May run in place.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: y, dout, out (T, D); formats f32, f16 or bf16, each its own.
struct SoftcapGradientArgs {
  TensorView y;
  TensorView dout;
  TensorView out;
  float cap = 30.0F;
};

inline Status check(const SoftcapGradientArgs& args) {
  ArgsCheck check("softcap_gradient");
  check.floats("y", args.y).floats("dout", args.dout).floats("out", args.out);
  check.shape("y", args.y, args.out.rows, args.out.columns).shape("dout", args.dout, args.out.rows, args.out.columns);
  check.that(args.cap > 0.0F, "a cap above 0");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct SoftcapGradient {
  using Args = SoftcapGradientArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 2; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const F32 one = splat_f32(1.0F);
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      const F32 r = load(args.y, row, column, 0.0F) / splat_f32(args.cap);
      store(args.out, row, column, load(args.dout, row, column, 0.0F) * ((one - r) * (one + r)));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
