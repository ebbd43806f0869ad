#pragma once
/// Activations: silu x*sigmoid(x), gelu 0.5x(1+erf(x/sqrt 2)) (Hendrycks and Gimpel 2016), gelu_tanh
/// (their tanh form), relu_squared max(x, 0)^2 (So et al. 2021), swiglu silu(gate)*up, geglu_tanh gelu_tanh(gate)*up
/// (Shazeer 2020), glu sigmoid(gate)*up (Dauphin et al. 2017), swiglu_clamped (gpt-oss) g*sigmoid(alpha*g)*(u+1),
/// g = min(gate, limit), u = up held to [-limit, limit].
///
/// Roundings, each an f32 one: silu s = sigmoid(x), x * s. gelu (0.5 * x) * (1 + erf(x * (1/sqrt 2))).
/// gelu_tanh (0.5 * x) * (1 + tanh(c * (x + 0.044715 * ((x * x) * x)))), c = sqrt(2/pi). swiglu
/// (x * sigmoid(x)) * up, geglu_tanh gelu_tanh(x) * up, glu sigmoid(x) * up, swiglu_clamped (u + 1) * (g *
/// sigmoid(alpha * g)). sigmoid, erf and tanh are our own, below 1 ulp (kernels/math). NaN stays NaN, under a clamp
/// too. +Inf gives +Inf, where nothing clamps it, and of glu a gate of 1. -0 gives -0, of relu_squared +0. Subnormals
/// are ordinary numbers. Traps: at -Inf all but relu_squared and glu compute -Inf * 0, a NaN, where the limit is -0.
/// gelu_tanh's cube leaves f32 beyond |x| = 7e12, harmlessly; swiglu's product leaves it as soon as both factors are
/// large, and an f16 output long before. 1 + erf cancels for x < -3: the error is an ulp of x, not of the result.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (gate for gated kinds), up (those only), out: (T, D), f32, f16 or bf16. alpha and limit: of
/// swiglu_clamped.
struct ActivationArgs {
  TensorView x;
  TensorView up;
  TensorView out;
  ActivationKind kind = ActivationKind::silu;
  float alpha = 1.702F;
  float limit = 7.0F;
};

inline Status check(const ActivationArgs& args) {
  ArgsCheck check("activation");
  check.floats("x", args.x).floats("out", args.out).shape("x", args.x, args.out.rows, args.out.columns);
  if (is_gated(args.kind)) {
    check.floats("up", args.up).shape("up", args.up, args.out.rows, args.out.columns);
  }
  if (args.kind == ActivationKind::swiglu_clamped) check.that(args.limit > 0.0F, "a limit above 0");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/erf.h"
#include "kernels/math/sigmoid.h"
#include "kernels/math/tanh.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Activation {
  using Args = ActivationArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 8; }

  NANSCOPE_LANE F32 gelu(const F32& x) {
    const F32 tail = erf(x * splat_f32(0.70710678118654752F));
    return (splat_f32(0.5F) * x) * (splat_f32(1.0F) + tail);
  }
  NANSCOPE_LANE F32 gelu_tanh(const F32& x) {
    const F32 cube = (x * x) * x;
    const F32 inner = splat_f32(0.79788456080286536F) * (x + splat_f32(0.044715F) * cube);
    return (splat_f32(0.5F) * x) * (splat_f32(1.0F) + tanh(inner));
  }

  NANSCOPE_LANE F32 clamped(const Args& args, const F32& gate, const F32& up) {
    const F32 limit = splat_f32(args.limit);
    const F32 low = splat_f32(-args.limit);
    const F32 g = select(limit < gate, limit, gate);
    const F32 u = select(limit < up, limit, select(up < low, low, up));
    return (u + splat_f32(1.0F)) * (g * sigmoid(g * splat_f32(args.alpha)));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      const F32 x = load(args.x, row, column, 0.0F);
      F32 y = x;
      switch (args.kind) {
        case ActivationKind::silu:
          y = x * sigmoid(x);
          break;
        case ActivationKind::gelu:
          y = gelu(x);
          break;
        case ActivationKind::gelu_tanh:
          y = gelu_tanh(x);
          break;
        case ActivationKind::relu_squared:
          y = max_propagate(x, splat_f32(0.0F));
          y = y * y;
          break;
        case ActivationKind::swiglu:
          y = (x * sigmoid(x)) * load(args.up, row, column, 0.0F);
          break;
        case ActivationKind::geglu_tanh:
          y = gelu_tanh(x) * load(args.up, row, column, 0.0F);
          break;
        case ActivationKind::glu:
          y = sigmoid(x) * load(args.up, row, column, 0.0F);
          break;
        case ActivationKind::swiglu_clamped:
          y = clamped(args, x, load(args.up, row, column, 0.0F));
          break;
      }
      store(args.out, row, column, y);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
