#pragma once
/// Gradient of the cross entropy for the logits: out = factor * (softmax(x) - onehot(target)) (Goodfellow, Bengio and
/// Courville 2016, 6.2.2.3). A row whose target is outside of the logits is +0. factor: 1 over the number of rows that
/// count, times a loss scale.
///
/// Order: that of kernels/ops/cross_entropy.h for the sum; exp(x - max) times the sum's reciprocal, the difference and
/// the product with factor in f64; one rounding, to out's format. May run in place.
/// NaN and +Inf in a row make all of it NaN, -Inf is a probability of 0. Trap: rows without a target are +0 whatever
/// their logits are.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: logits, out (T, V), f32, f16 or bf16, each its own; targets (T, 1) i32.
struct CrossEntropyGradientArgs {
  TensorView logits;
  TensorView targets;
  TensorView out;
  float factor = 1.0F;
};

inline Status check(const CrossEntropyGradientArgs& args) {
  ArgsCheck check("cross_entropy_gradient");
  check.floats("logits", args.logits).floats("out", args.out).format("targets", args.targets, {Format::i32});
  check.shape("logits", args.logits, args.out.rows, args.out.columns);
  check.shape("targets", args.targets, args.out.rows, 1);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/log_sum_exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct CrossEntropyGradient {
  using Args = CrossEntropyGradientArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 16; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t target = read_index(args.targets, row);
    if (target < 0 || target >= args.out.columns) {
      for (std::int64_t i = 0; i < args.out.columns; i += kLanes) store(args.out, row, i, splat_f32(0.0F));
      return;
    }
    const F64 max = logit_max(args.logits, row);
    const F64 share = splat_f64(1.0 / logit_sum(args.logits, row, max));
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      const Mask wanted = lanes_below(target + 1 - column) & !lanes_below(target - column);
      const F64 probability = logit_weight(load(args.logits, row, column, 0.0F), max) * share;
      const F64 difference = select(wanted, probability - splat_f64(1.0), probability);
      store(args.out, row, column, to_f32(difference * splat_f64(static_cast<double>(args.factor))));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
