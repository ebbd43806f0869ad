#pragma once
/// Cross entropy of each row of logits with its target, in nats: loss = log sum_v exp(x_v - max) + (max - x_target)
/// (Goodfellow, Bengio and Courville 2016, 6.2.2.3). A target outside of the logits, as -1 for a token that is not to
/// be learned, gives +0.
///
/// Order: the maximum has none; lane l adds logits l, l + 32, ... ascending from +0, then the butterfly 16 8 4 2 1,
/// exp, sum and log in f64; one rounding, to f32. NaN and +Inf in a row make its loss NaN, -Inf is a probability of 0:
/// a loss of Inf where it is the target's, and NaN where all of the row are. Trap: a row without a target is +0
/// whatever its logits are, so that NaN in it is not seen.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: logits (T, V) f32, f16 or bf16; targets (T, 1) i32; loss (T, 1) f32.
struct CrossEntropyArgs {
  TensorView logits;
  TensorView targets;
  TensorView loss;
};

inline Status check(const CrossEntropyArgs& args) {
  ArgsCheck check("cross_entropy");
  check.floats("logits", args.logits).format("targets", args.targets, {Format::i32});
  check.shape("targets", args.targets, args.logits.rows, 1);
  check.format("loss", args.loss, {Format::f32}).shape("loss", args.loss, args.logits.rows, 1);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/log.h"
#include "kernels/ops/log_sum_exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct CrossEntropy {
  using Args = CrossEntropyArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.logits.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.logits.columns * 8; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t target = read_index(args.targets, row);
    if (target < 0 || target >= args.logits.columns) {
      store_range(args.loss, row, 0, 1, splat_f32(0.0F));
      return;
    }
    const F64 max = logit_max(args.logits, row);
    const double total = logit_sum(args.logits, row, max);
    const int lane = static_cast<int>(target % kLanes);
    const F64 wanted = to_f64(splat_f32(broadcast(load(args.logits, row, target - lane, 0.0F), lane)));
    store_range(args.loss, row, 0, 1, to_f32(log(splat_f64(total)) + (max - wanted)));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
