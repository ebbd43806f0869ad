#pragma once
/// Polynomials over f64 lanes.
#include "kernels/warp/warp.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Horner's scheme with a multiplication and an addition a step, highest power first. No fma: the
/// result is the same on a machine without one.
template <class... Coefficients>
NANSCOPE_FN F64 horner(const F64& x, double highest, Coefficients... rest) {
  F64 result = splat_f64(highest);
  ((result = result * x + splat_f64(rest)), ...);
  return result;
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
