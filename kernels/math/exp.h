#pragma once
/// exp over f32 and f64 lanes, and what the other functions need of it.
///
/// Method: x = n ln2 + r with |r| <= ln2/2, e^r by its Taylor series in f64, times 2^n by the
/// exponent's bits; f32 results are rounded once at the end.
/// Error: f32 correctly rounded (0.5 ulp) for all 2^32 inputs, f64 below 1.5 ulp in the normal range. Edge cases as C99
/// F.9.3.1: exp(-Inf) = 0, exp(Inf) = Inf, NaN gives NaN.
#include "kernels/math/polynomial.h"

namespace nanscope::kernels::NANSCOPE_ISA {
namespace detail {

/// x = n ln2 + r. The integer n also stands in the low bits of `shifted`.
struct ExpReduction {
  F64 n;
  F64 r;
  F64 shifted;
};

/// |x| < 2^20 ln2, so that n has few enough bits for n * ln2_high to be exact.
NANSCOPE_FN ExpReduction reduce_exp(const F64& x) {
  const F64 magic = splat_f64(0x1.8p52);
  const F64 shifted = x * splat_f64(0x1.71547652b82fep0) + magic;  // 1/ln2
  const F64 n = shifted - magic;
  const F64 r = (x - n * splat_f64(0x1.62e42feep-1)) - n * splat_f64(0x1.a39ef35793c76p-33);
  return {n, r, shifted};
}

/// 2^n for the n in the low bits of `shifted`, -1022 <= n <= 1023.
NANSCOPE_FN F64 power_of_two(const F64& shifted) {
  return from_bits((raw_bits(shifted) << 52) + splat_u64(0x3ff0000000000000U));
}

/// (e^r - 1) / r: Taylor to r^13/14!, |r| <= 0.35: relative error below 1e-17.
NANSCOPE_FN F64 expm1_over_r(const F64& r) {
  return horner(r, 1.0 / 87178291200.0, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0);
}

/// e^x for |x| <= 700.
NANSCOPE_FN F64 exp_in_range(const F64& x) {
  const ExpReduction reduced = reduce_exp(x);
  return (splat_f64(1.0) + reduced.r * expm1_over_r(reduced.r)) * power_of_two(reduced.shifted);
}

/// e^x - 1 for |x| <= 700, without the cancellation near 0.
NANSCOPE_FN F64 expm1_in_range(const F64& x) {
  const ExpReduction reduced = reduce_exp(x);
  const F64 power = power_of_two(reduced.shifted);
  return power * (reduced.r * expm1_over_r(reduced.r)) + (power - splat_f64(1.0));
}

/// NaN passes: no comparison with it is true.
NANSCOPE_FN F64 clamp(const F64& x, double low, double high) {
  const F64 above = select(x < splat_f64(low), splat_f64(low), x);
  return select(above > splat_f64(high), splat_f64(high), above);
}

}  // namespace detail

NANSCOPE_FN F32 exp(const F32& x) {
  // Beyond these arguments every f32 result is 0 or Inf, which the final rounding makes.
  return to_f32(detail::exp_in_range(detail::clamp(to_f64(x), -105.0, 90.0)));
}

NANSCOPE_FN F64 exp(const F64& x) {
  const detail::ExpReduction reduced = detail::reduce_exp(detail::clamp(x, -746.0, 710.0));
  const F64 base = splat_f64(1.0) + reduced.r * detail::expm1_over_r(reduced.r);
  // 2^n may be beyond f64 although the product is not: two factors.
  const F64 magic = splat_f64(0x1.8p52);
  const F64 half = reduced.n * splat_f64(0.5) + magic;
  const F64 other = (reduced.n - (half - magic)) + magic;
  return (base * detail::power_of_two(half)) * detail::power_of_two(other);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
