#pragma once
/// tanh over f32 lanes: t / (t + 2) with t = e^(2|x|) - 1, in f64, rounded once; the sign is x's.
/// Error: correctly rounded (0.5 ulp) for all 2^32 inputs. Edge cases as C99 F.9.2.6: tanh(-0) = -0, tanh(+-Inf) = +-1.
#include "kernels/math/exp.h"

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_FN F32 tanh(const F32& x) {
  const F64 magnitude = detail::clamp(abs(to_f64(x)), 0.0, 10.0);  // from 9.02 on the nearest f32 is 1
  const F64 t = detail::expm1_in_range(magnitude + magnitude);
  return copy_sign(to_f32(t / (t + splat_f64(2.0))), x);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
