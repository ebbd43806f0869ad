#pragma once
/// Gradients of the weighed sum of experts (kernels/ops/expert_mix.h) for the weights and for what the experts put out:
///   weights_out[t, j] = sum_i dout[t, i] * experts[ids[t, j] * T + t, i]
///   experts_out[e * T + t] = w * dout[t], w the sum of weights[t, j] over ids[t, j] == e; exactly +0 where there is
///   none
///
/// Order of the sum: lane l adds channels l, l + 32, ... ascending, products fused with their sums, then the butterfly
/// 16 8 4 2 1; one rounding to weights_out's format. Of weights j ascends; a product is one f32 rounding, then one to
/// experts_out's format.
/// NaN, Inf: IEEE's, in their row. An expert that was not chosen is not read, and its row is +0 whatever dout is. An id
/// that names no expert gives its weight +0.
#include "kernels/check.h"
#include "kernels/ops/route.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: experts, experts_out (E * T, D) with the rows of one expert together; dout (T, D); weights (T, k) f32; ids
/// (T, k) i32, k at most 32; weights_out (T, k); experts, experts_out, dout and weights_out f32, f16 or bf16.
struct ExpertMixGradientArgs {
  TensorView experts;
  TensorView weights;
  TensorView ids;
  TensorView dout;
  TensorView weights_out;
  TensorView experts_out;
};

inline Status check(const ExpertMixGradientArgs& args) {
  ArgsCheck check("expert_mix_gradient");
  const std::int64_t tokens = args.dout.rows;
  const std::int64_t chosen = args.ids.columns;
  check.floats("dout", args.dout).floats("experts", args.experts).floats("experts_out", args.experts_out);
  check.format("weights", args.weights, {Format::f32}).format("ids", args.ids, {Format::i32});
  check.floats("weights_out", args.weights_out);
  check.shape("weights", args.weights, tokens, chosen).shape("ids", args.ids, tokens, chosen);
  check.shape("weights_out", args.weights_out, tokens, chosen);
  check.shape("experts", args.experts, args.experts_out.rows, args.dout.columns);
  check.shape("experts_out", args.experts_out, args.experts.rows, args.dout.columns);
  check.that(tokens > 0 && args.experts.rows % tokens == 0, "a row of each expert for every token");
  check.that(chosen <= kMostChosen, "at most 32 experts of a token");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct ExpertMixGradient {
  using Args = ExpertMixGradientArgs;

  /// Warp = one token.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.dout.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.dout.columns * (args.ids.columns + args.experts.rows / args.dout.rows);
  }

  NANSCOPE_LANE float along(const Args& args, std::int64_t token, std::int64_t expert) {
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t column = 0; column < args.dout.columns; column += kLanes) {
      const Mask inside = lanes_below(args.dout.columns - column);
      const F32 dout = load(args.dout, token, column, 0.0F);
      const F32 value = load(args.experts, expert * args.dout.rows + token, column, 0.0F);
      lanes = select(inside, fma(dout, value, lanes), lanes);
    }
    return sum(lanes);
  }

  /// What a token weighs an expert by.
  struct Share {
    float weight = 0.0F;
    bool chosen = false;
  };

  NANSCOPE_LANE Share share_of(const Args& args, std::int64_t token, std::int64_t expert) {
    Share share;
    for (std::int64_t j = 0; j < args.ids.columns; ++j) {
      if (load_i32_scalar(args.ids, token, j) != expert) continue;
      const float weight = load_f32_scalar(args.weights, token, j);
      share = {share.chosen ? share.weight + weight : weight, true};
    }
    return share;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t token) {
    const std::int64_t experts = args.experts.rows / args.dout.rows;
    F32 weights = splat_f32(0.0F);
    for (std::int64_t j = 0; j < args.ids.columns; ++j) {
      const std::int64_t expert = load_i32_scalar(args.ids, token, j);
      if (expert < 0 || expert >= experts) continue;
      weights = select(lanes_below(j + 1) & !lanes_below(j), splat_f32(along(args, token, expert)), weights);
    }
    store(args.weights_out, token, 0, weights);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      const Share share = share_of(args, token, expert);
      const F32 weight = splat_f32(share.weight);
      for (std::int64_t column = 0; column < args.dout.columns; column += kLanes) {
        const F32 own = share.chosen ? weight * load(args.dout, token, column, 0.0F) : splat_f32(0.0F);
        store(args.experts_out, expert * args.dout.rows + token, column, own);
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
