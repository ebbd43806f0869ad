#pragma once
/// The chosen experts' outputs, weighed: out[t] = sum_j weights[t, j] * experts[ids[t, j] * T + t].
///
/// Order: one fma chain an output, j ascending from +0, one rounding to out's format. NaN, Inf: IEEE's; an expert that
/// was not chosen is not read. An id that names no expert adds nothing.
/// Traps: a weight of 0 does not shield: 0 * NaN is NaN.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: experts (E * T, D) with the rows of one expert together; weights (T, k) f32; ids (T, k) i32; out (T, D);
/// experts and out f32, f16 or bf16.
struct ExpertMixArgs {
  TensorView experts;
  TensorView weights;
  TensorView ids;
  TensorView out;
};

inline Status check(const ExpertMixArgs& args) {
  ArgsCheck check("expert_mix");
  check.floats("out", args.out).floats("experts", args.experts).format("weights", args.weights, {Format::f32});
  check.format("ids", args.ids, {Format::i32}).shape("ids", args.ids, args.out.rows, args.weights.columns);
  check.shape("weights", args.weights, args.out.rows, args.ids.columns);
  check.shape("experts", args.experts, args.experts.rows, args.out.columns);
  check.that(args.out.rows > 0 && args.experts.rows % args.out.rows == 0, "a row of each expert for every token");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct ExpertMix {
  using Args = ExpertMixArgs;

  /// Warp = one token.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * args.ids.columns; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t experts = args.experts.rows / args.out.rows;
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      F32 total = splat_f32(0.0F);
      for (std::int64_t j = 0; j < args.ids.columns; ++j) {
        const std::int64_t expert = load_i32_scalar(args.ids, row, j);
        if (expert < 0 || expert >= experts) continue;
        const F32 weight = splat_f32(load_f32_scalar(args.weights, row, j));
        total = fma(weight, load(args.experts, expert * args.out.rows + row, column, 0.0F), total);
      }
      store(args.out, row, column, total);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
