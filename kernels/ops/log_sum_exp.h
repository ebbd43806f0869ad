#pragma once
/// What the cross entropy and its gradient share: the maximum of a row of logits and sum_v exp(x_v - max), in f64.
#include <cmath>

#include "kernels/math/exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// In all lanes; NaN when a logit is.
NANSCOPE_FN F64 logit_max(const TensorView& logits, std::int64_t row) {
  F32 lanes = splat_f32(-HUGE_VALF);
  for (std::int64_t column = 0; column < logits.columns; column += kLanes) {
    lanes = max_propagate(lanes, load(logits, row, column, -HUGE_VALF));
  }
  return to_f64(splat_f32(max_propagate_across(lanes)));
}

/// exp(x - max), which is at most 1. Below -700 it is e^-700, which no sum with a 1 in it feels and no f32 keeps.
NANSCOPE_FN F64 logit_weight(const F32& x, const F64& max) {
  return detail::exp_in_range(detail::clamp(to_f64(x) - max, -700.0, 0.0));
}

/// Sum of the weights: lane l adds columns l, l + 32, ... ascending from +0, then the butterfly 16 8 4 2 1.
NANSCOPE_FN double logit_sum(const TensorView& logits, std::int64_t row, const F64& max) {
  F64 lanes = splat_f64(0.0);
  for (std::int64_t column = 0; column < logits.columns; column += kLanes) {
    const Mask valid = lanes_below(logits.columns - column);
    const F64 weight = logit_weight(load(logits, row, column, 0.0F), max);
    lanes = select(valid, lanes + weight, lanes);
  }
  return sum(lanes);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
