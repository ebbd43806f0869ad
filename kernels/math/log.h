#pragma once
/// Natural logarithm over f32 and f64 lanes.
///
/// Method: x = 2^k m with m in [sqrt 1/2, sqrt 2), log m = 2 atanh(s) with s = (m - 1) / (m + 1) by its
/// series in s^2 (|s| <= 0.172), plus k ln2 in two parts.
/// Error: f32 at most 0.50000001 ulp over all 2^32 inputs, 5 of which are not correctly rounded, f64 below 2 ulp. Edge
/// cases as C99 F.9.3.7: log(+-0) = -Inf, log(x < 0) = NaN, log(Inf) = Inf.
#include "kernels/math/polynomial.h"

namespace nanscope::kernels::NANSCOPE_ISA {
namespace detail {

/// log of a positive normal f64.
NANSCOPE_FN F64 log_normal(const F64& x) {
  const U64 bits = raw_bits(x);
  const U64 from_middle = bits - splat_u64(0x3fe6a09e667f3bcdU);  // bits of sqrt 1/2
  const F64 m = from_bits(bits - (from_middle & splat_u64(0xfff0000000000000U)));
  const F64 k = to_f64(to_i32(high_u32(from_middle)) >> 20);
  const F64 f = m - splat_f64(1.0);
  const F64 s = f / (m + splat_f64(1.0));
  const F64 z = s * s;
  const F64 tail = z * horner(z, 2.0 / 25.0, 2.0 / 23.0, 2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0,
                              2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0);
  // 2s = f - s f exactly in real numbers, and f is exact: the error of s is scaled down by f.
  const F64 low = s * (tail - f) + k * splat_f64(0x1.a39ef35793c76p-33);
  return k * splat_f64(0x1.62e42feep-1) + (f + low);
}

}  // namespace detail

NANSCOPE_FN F64 log(const F64& x) {
  const F64 zero = splat_f64(0.0);
  const F64 inf = from_bits(splat_u64(0x7ff0000000000000U));
  const F64 nan = from_bits(splat_u64(0x7fffffffffffffffU));
  const Mask subnormal = x < splat_f64(0x1p-1022);
  const F64 normal = select(subnormal, x * splat_f64(0x1p54), x);
  const F64 shift = select(subnormal, splat_f64(54.0 * 0.69314718055994530942), zero);
  F64 result = detail::log_normal(normal) - shift;
  result = select(x == inf, inf, result);
  result = select(x == zero, -inf, result);
  return select((x < zero) | is_nan(x), nan, result);
}

NANSCOPE_FN F32 log(const F32& x) {
  const F64 wide = to_f64(x);  // every f32 is a normal f64, or 0
  const F32 inf = splat_f32(__builtin_inff());
  F32 result = to_f32(detail::log_normal(wide));
  result = select(x == inf, inf, result);
  result = select(x == splat_f32(0.0F), -inf, result);
  return select((x < splat_f32(0.0F)) | is_nan(x), from_bits(splat_u32(kCanonicalNan)), result);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
