#pragma once
/// Error function over f32 lanes, in f64, rounded once.
///
/// Method: below 1 the Maclaurin series (Abramowitz and Stegun 7.1.5); up to 4, where every further
/// result is 1, 1 - e^(-x^2) g(t) with g = erfcx as a polynomial in t = (x - 2) / (x + 2) (its
/// coefficients are derived in derive_coefficients.py; relative error 4e-17).
/// Error: correctly rounded (0.5 ulp) for all 2^32 inputs. erf(-0) = -0, erf(+-Inf) = +-1.
#include "kernels/math/exp.h"

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_FN F32 erf(const F32& x) {
  const F64 a = detail::clamp(abs(to_f64(x)), 0.0, 4.0);
  const F64 z = a * a;
  const F64 series = horner(z, -1.0 / 12449059983360000.0, 1.0 / 690452066304000.0, -1.0 / 40537905408000.0,
                            1.0 / 2528170444800.0, -1.0 / 168129561600.0, 1.0 / 11975040000.0, -1.0 / 918086400.0,
                            1.0 / 76204800.0, -1.0 / 6894720.0, 1.0 / 685440.0, -1.0 / 75600.0, 1.0 / 9360.0,
                            -1.0 / 1320.0, 1.0 / 216.0, -1.0 / 42.0, 1.0 / 10.0, -1.0 / 3.0, 1.0);
  const F64 small = (a * splat_f64(0x1.20dd750429b6dp0)) * series;  // 2/sqrt(pi)
  const F64 t = (a - splat_f64(2.0)) / (a + splat_f64(2.0));
  const F64 g = horner(t, 0x1.de73557131615p-19, 0x1.ede2a59840e08p-20, -0x1.d369cb61b5499p-17, -0x1.cfecb547645bdp-16,
                       0x1.cdbeca2b511dep-16, 0x1.6dacad7ef23e0p-13, 0x1.6d5f47f9b2732p-15, -0x1.016b6187f0c1bp-10,
                       -0x1.bc25a498e6ec7p-11, 0x1.ca95ed5a1ce10p-8, 0x1.e9471597b14aap-9, -0x1.437f0b68c1e18p-4,
                       0x1.eeea7dc8a78b0p-3, -0x1.b57034efd3f6fp-2, 0x1.058671b52c776p-2);
  const F64 large = splat_f64(1.0) - detail::exp_in_range(-z) * g;
  return copy_sign(to_f32(select(a < splat_f64(1.0), small, large)), x);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
