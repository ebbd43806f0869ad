#pragma once
/// Logistic sigmoid 1 / (1 + e^-x) over f32 lanes, in f64, rounded once.
/// Error: at most 0.50000001 ulp over all 2^32 inputs, 62 of which are not correctly rounded. sigmoid(-Inf) = 0,
/// sigmoid(Inf) = 1, NaN gives NaN.
#include "kernels/math/exp.h"

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_FN F32 sigmoid(const F32& x) {
  const F64 power = detail::exp_in_range(-detail::clamp(to_f64(x), -105.0, 105.0));
  return to_f32(splat_f64(1.0) / (splat_f64(1.0) + power));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
