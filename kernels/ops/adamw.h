#pragma once
/// One step of AdamW: Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019), in the order
/// of torch.optim.AdamW. With correction = 1 - beta^step:
///   w -= (learning_rate * weight_decay) * w                       one fma; nothing where that product is 0
///   g  = gradient * gradient_scale
///   m  = beta1 * m + (1 - beta1) * g
///   v  = beta2 * v + ((1 - beta2) * g) * g
///   w -= ((learning_rate / correction1) * m) / (sqrt(v) / sqrt(correction2) + eps)
///   out = w, rounded to the model's format
///
/// Roundings: f32, one an operation as written, but for the fma. m and v are rounded to the state's format before they
/// are used, and so is eps, to nearest even. out is rounded to nearest even or, stochastic, up with the probability of
/// the remainder, drawn from a counter of seed and element (core/blocks/block_element.h: block_draw); what to nearest
/// is Inf or NaN is so then, too.
/// NaN, Inf: IEEE's, and in their element alone; a NaN in m or v stays there for good, and a weight of Inf is Inf - Inf
/// under decay. Traps: an eps below the state's
/// format is 0 there, as 1e-8 in f16, and so is a v below it: an element whose gradient has been 0 is then 0/0, a NaN,
/// and one with a small gradient m/0, an Inf. In bf16 a v under beta2 = 0.999 never shrinks: 0.001 v is less than half
/// an ulp of it. Rounded to nearest, what is below half an ulp of `out` changes nothing there, though the f32 weight
/// keeps it.
#include "core/blocks/block_element.h"
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: all (R, C). gradient f32, f16 or bf16, read; weight f32, the master weight, in and out; m, v f32, f16 or
/// bf16, one format, in and out; out f32, f16 or bf16, or not given. seed: of stochastic rounding.
struct AdamWArgs {
  TensorView gradient;
  TensorView weight;
  TensorView m;
  TensorView v;
  TensorView out = {};
  float learning_rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0.01F;
  float gradient_scale = 1.0F;
  float correction1 = 1.0F;  ///< 1 - beta1^step
  float correction2 = 1.0F;  ///< 1 - beta2^step
  bool stochastic = false;
  std::uint32_t seed = 0;
};

inline Status check(const AdamWArgs& args) {
  ArgsCheck check("adamw");
  const TensorView& weight = args.weight;
  check.floats("gradient", args.gradient).format("weight", weight, {Format::f32});
  check.floats("m", args.m).floats("v", args.v).that(args.m.format == args.v.format, "m and v of one format");
  check.shape("gradient", args.gradient, weight.rows, weight.columns);
  check.shape("m", args.m, weight.rows, weight.columns).shape("v", args.v, weight.rows, weight.columns);
  if (args.out.given()) check.floats("out", args.out).shape("out", args.out, weight.rows, weight.columns);
  check.that(args.correction1 > 0.0F && args.correction2 > 0.0F, "corrections above 0");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct AdamW {
  using Args = AdamWArgs;

  /// Columns of one warp: rows may be few and long.
  static constexpr std::int64_t kChunk = 1024;

  NANSCOPE_HOST std::int64_t chunks(const Args& args) { return div_up(args.weight.columns, kChunk); }
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.weight.rows * chunks(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return (args.weight.columns < kChunk ? args.weight.columns : kChunk) * 8;
  }

  /// f32 to the code of f32, f16 or bf16, to nearest even, beyond the largest finite value Inf.
  NANSCOPE_LANE U32 nearest(Format format, const F32& value) {
    if (format == Format::f16) return encode_bits<Format::f16>(raw_bits(value), Overflow::overflow);
    if (format == Format::bf16) return encode_bits<Format::bf16>(raw_bits(value), Overflow::overflow);
    return bits(value);
  }

  template <Format F>
  NANSCOPE_LANE U32 up_or_down(const F32& value, const U32& random) {
    constexpr CodecParams p = kCodecParams<F>;
    const U32 to_nearest = encode_bits<F>(raw_bits(value), Overflow::overflow);
    const U32 drawn = encode_block_element(p, Ties::stochastic, raw_bits(value), random);
    const U32 magnitude = to_nearest & splat_u32((1U << (p.exponent_bits + p.mantissa_bits)) - 1U);
    return select(magnitude > splat_u32(p.max_finite_code), to_nearest, drawn);
  }

  NANSCOPE_LANE void store_rounded(const Args& args, std::int64_t row, std::int64_t column, std::int64_t left,
                                   const F32& weight) {
    U32 code = nearest(args.out.format, weight);
    if (args.stochastic && args.out.format != Format::f32) {
      const U32 index = lane_id() + splat_u32(static_cast<std::uint32_t>(row * args.out.columns + column));
      const U32 random = block_draw(index, args.seed);
      code = args.out.format == Format::f16 ? up_or_down<Format::f16>(weight, random)
                                            : up_or_down<Format::bf16>(weight, random);
    }
    store_code_range(args.out, row, column, left, code);
  }

  /// Stores the value in the state's format and hands back what is stored.
  NANSCOPE_LANE F32 keep(const TensorView& state, std::int64_t row, std::int64_t column, std::int64_t left,
                         const F32& value) {
    const U32 code = nearest(state.format, value);
    store_code_range(state, row, column, left, code);
    return decode_lanes(state.format, code);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / chunks(args);
    const std::int64_t first = warp % chunks(args) * kChunk;
    const std::int64_t end = first + kChunk < args.weight.columns ? first + kChunk : args.weight.columns;
    const bool decays = args.learning_rate * args.weight_decay != 0.0F;
    const F32 decay = splat_f32(-(args.learning_rate * args.weight_decay));
    const F32 step = splat_f32(args.learning_rate / args.correction1);
    const F32 root_correction = splat_f32(sqrt_uniform(args.correction2));
    const F32 eps = decode_lanes(args.v.format, nearest(args.v.format, splat_f32(args.eps)));
    const F32 beta1 = splat_f32(args.beta1);
    const F32 beta2 = splat_f32(args.beta2);
    const F32 rest1 = splat_f32(1.0F - args.beta1);
    const F32 rest2 = splat_f32(1.0F - args.beta2);
    for (std::int64_t column = first; column < end; column += kLanes) {
      const std::int64_t left = end - column;
      const F32 g = load_range(args.gradient, row, column, left, 0.0F) * splat_f32(args.gradient_scale);
      const F32 old_m = load_range(args.m, row, column, left, 0.0F);
      const F32 old_v = load_range(args.v, row, column, left, 0.0F);
      const F32 old_weight = load_range(args.weight, row, column, left, 0.0F);
      const F32 m = keep(args.m, row, column, left, beta1 * old_m + rest1 * g);
      const F32 v = keep(args.v, row, column, left, beta2 * old_v + (rest2 * g) * g);
      const F32 decayed = decays ? fma(decay, old_weight, old_weight) : old_weight;
      const F32 weight = decayed - (step * m) / (sqrt(v) / root_correction + eps);
      store_range(args.weight, row, column, left, weight);
      if (args.out.given()) store_rounded(args, row, column, left, weight);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
