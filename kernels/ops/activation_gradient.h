#pragma once
/// Gradients of the activations (kernels/ops/activation.h), out = dout * dy/dx and of gated kinds up_out = dout *
/// dy/dup:
///   silu            s (1 + x (1 - s)), s = sigmoid(x)
///   gelu            0.5 (1 + erf(x / sqrt 2)) + x exp(-x^2 / 2) / sqrt(2 pi)
///   gelu_tanh       0.5 (1 + t) + (0.5 x (1 - t)(1 + t)) c (1 + 3 * 0.044715 x^2), t = tanh(c (x + 0.044715 x^3)),
///                   c = sqrt(2 / pi)
///   relu_squared    2 max(x, 0)
///   glu             dx = (dout up) (s (1 - s)), dup = dout s, s = sigmoid(x)
///   swiglu          dx = (dout up) silu'(x), dup = dout silu(x);  geglu_tanh the same of gelu_tanh
///   swiglu_clamped  dx = (dout (u + 1)) (s (1 + alpha g (1 - s))), dup = dout (g s), s = sigmoid(alpha g), with the
///                   forward's g and u; +0 where its clamp held x or up, whatever dout is (torch.clamp: at the limit
///                   itself the gradient passes)
/// (Hendrycks and Gimpel 2016; Shazeer 2020; gpt-oss; differentiated.)
///
/// Roundings: f32, one an operation as written; sigmoid, erf, tanh and exp are our own, at most 0.50000001 ulp. May run
/// in place.
/// NaN stays NaN. Traps: at +-Inf the derivative is Inf * 0, a NaN, though its limit is 1 or 0 (of swiglu_clamped at
/// -Inf alone); gelu_tanh's is NaN from |x| = 1.8e19 on, where x^2 leaves f32.
#include "kernels/check.h"
#include "kernels/ops/activation.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (gate for gated kinds), dout, out: (T, D), and for gated kinds alone up, up_out: (T, D); formats f32, f16
/// or bf16, each its own. alpha and limit: of swiglu_clamped.
struct ActivationGradientArgs {
  TensorView x;
  TensorView up = {};
  TensorView dout;
  TensorView out;
  TensorView up_out = {};
  ActivationKind kind = ActivationKind::silu;
  float alpha = 1.702F;
  float limit = 7.0F;
};

inline Status check(const ActivationGradientArgs& args) {
  ArgsCheck check("activation_gradient");
  const TensorView& out = args.out;
  check.floats("x", args.x).floats("dout", args.dout).floats("out", out);
  check.shape("x", args.x, out.rows, out.columns).shape("dout", args.dout, out.rows, out.columns);
  if (is_gated(args.kind)) {
    check.floats("up", args.up).shape("up", args.up, out.rows, out.columns);
    check.floats("up_out", args.up_out).shape("up_out", args.up_out, out.rows, out.columns);
  }
  if (args.kind == ActivationKind::swiglu_clamped) check.that(args.limit > 0.0F, "a limit above 0");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/erf.h"
#include "kernels/math/exp.h"
#include "kernels/math/sigmoid.h"
#include "kernels/math/tanh.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct ActivationGradient {
  using Args = ActivationGradientArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 12; }

  /// y and dy/dx.
  struct Curve {
    F32 value;
    F32 slope;
  };

  NANSCOPE_LANE Curve silu(const F32& x) {
    const F32 one = splat_f32(1.0F);
    const F32 s = sigmoid(x);
    return {x * s, s * (one + x * (one - s))};
  }
  NANSCOPE_LANE Curve gelu(const F32& x) {
    const F32 half = splat_f32(0.5F);
    const F32 tail = splat_f32(1.0F) + erf(x * splat_f32(0.70710678118654752F));
    const F32 density = exp(-(half * (x * x))) * splat_f32(0.39894228040143268F);
    return {(half * x) * tail, half * tail + x * density};
  }
  NANSCOPE_LANE Curve gelu_tanh(const F32& x) {
    const F32 one = splat_f32(1.0F);
    const F32 half = splat_f32(0.5F);
    const F32 c = splat_f32(0.79788456080286536F);
    const F32 t = tanh(c * (x + splat_f32(0.044715F) * ((x * x) * x)));
    const F32 inner = c * (one + splat_f32(0.134145F) * (x * x));
    return {(half * x) * (one + t), half * (one + t) + ((half * x) * ((one - t) * (one + t))) * inner};
  }

  NANSCOPE_LANE Curve relu_squared(const F32& x) {
    const F32 positive = max_propagate(x, splat_f32(0.0F));
    return {positive * positive, splat_f32(2.0F) * positive};
  }
  NANSCOPE_LANE Curve gate(const F32& x) {
    const F32 s = sigmoid(x);
    return {s, s * (splat_f32(1.0F) - s)};
  }

  NANSCOPE_LANE Curve curve(ActivationKind kind, const F32& x) {
    if (kind == ActivationKind::gelu) return gelu(x);
    if (kind == ActivationKind::relu_squared) return relu_squared(x);
    if (kind == ActivationKind::glu) return gate(x);
    if (kind == ActivationKind::gelu_tanh || kind == ActivationKind::geglu_tanh) return gelu_tanh(x);
    return silu(x);
  }

  NANSCOPE_LANE void clamped(const Args& args, std::int64_t row, std::int64_t column, const F32& x, const F32& dout) {
    const F32 zero = splat_f32(0.0F);
    const F32 one = splat_f32(1.0F);
    const F32 limit = splat_f32(args.limit);
    const F32 low = splat_f32(-args.limit);
    const F32 up = load(args.up, row, column, 0.0F);
    const F32 g = select(limit < x, limit, x);
    const F32 u = select(limit < up, limit, select(up < low, low, up));
    const F32 s = sigmoid(g * splat_f32(args.alpha));
    const F32 slope = s * (one + (g * splat_f32(args.alpha)) * (one - s));
    store(args.out, row, column, select(limit < x, zero, (dout * (u + one)) * slope));
    store(args.up_out, row, column, select((limit < up) | (up < low), zero, dout * (g * s)));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      const F32 x = load(args.x, row, column, 0.0F);
      const F32 dout = load(args.dout, row, column, 0.0F);
      if (args.kind == ActivationKind::swiglu_clamped) {
        clamped(args, row, column, x, dout);
        continue;
      }
      const Curve y = curve(args.kind, x);
      if (!is_gated(args.kind)) {
        store(args.out, row, column, dout * y.slope);
        continue;
      }
      const F32 up = load(args.up, row, column, 0.0F);
      store(args.out, row, column, (dout * up) * y.slope);
      store(args.up_out, row, column, dout * y.value);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
