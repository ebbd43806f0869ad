#pragma once
/// sin and cos over f32 lanes (all arguments) and f64 lanes (|x| <= 1e8, beyond: NaN).
///
/// Method: x = n pi/2 + r with |r| <= pi/4, n from the nearest integer; r by pi/2 in four parts whose
/// products with n are exact (Cody and Waite 1980), for |x| > 1e8 by an integer product with the
/// relevant 96 bits of 2/pi (Payne and Hanek 1983); then Taylor series in f64.
/// Error: f32 at most 0.50000001 ulp over all 2^32 inputs, of which sin rounds 2 and cos 4 not correctly, f64 below 3
/// ulp in its domain. Edge cases as C99 F.9.1: sin(-0) = -0, sin(+-Inf) = cos(+-Inf) = NaN.
#include "kernels/math/polynomial.h"

namespace nanscope::kernels::NANSCOPE_ISA {
namespace detail {

inline constexpr double kCodyWaiteLimit = 1e8;

/// x = (4 j + quadrant) pi/2 + r; only the low two bits of the quadrant count.
struct TrigReduction {
  F64 r;
  U32 quadrant;
};

/// |x| <= kCodyWaiteLimit: n has at most 26 bits, each of the first three parts of pi/2 has 27.
NANSCOPE_FN TrigReduction reduce_trig(const F64& x) {
  const F64 magic = splat_f64(0x1.8p52);
  const F64 shifted = x * splat_f64(0x1.45f306dc9c883p-1) + magic;  // 2/pi
  const F64 n = shifted - magic;
  F64 r = x - n * splat_f64(0x1.921fb54p0);
  r = r - n * splat_f64(0x1.10b4610p-30);
  r = r - n * splat_f64(0x1.a626330p-58);
  r = r - n * splat_f64(0x1.45c06e0e68948p-86);
  return {r, low_u32(raw_bits(shifted))};
}

/// Word `k` + index of 2/pi's bits, index 0 to 3.
NANSCOPE_FN U32 two_over_pi(const U32& index, std::uint32_t w0, std::uint32_t w1, std::uint32_t w2, std::uint32_t w3) {
  const U32 low = select(index == splat_u32(0), splat_u32(w0), splat_u32(w1));
  const U32 high = select(index == splat_u32(2), splat_u32(w2), splat_u32(w3));
  return select(index < splat_u32(2), low, high);
}

/// |x| = M 2^E with E >= 3. Bits of 2/pi that M 2^E turns into multiples of 4 are left out; the next
/// 96 give the quadrant and 94 bits of the fraction.
NANSCOPE_FN TrigReduction reduce_trig_large(const F32& x) {
  const U32 bits = raw_bits(abs(x));
  const U32 start = (bits >> 23) - splat_u32(152);  // E - 2: index of the first bit that counts
  const U32 index = (start >> 5) & splat_u32(3);
  const U32 shift = start & splat_u32(31);
  const U32 word0 = two_over_pi(index, 0xa2f9836eU, 0x4e441529U, 0xfc2757d1U, 0xf534ddc0U);
  const U32 word1 = two_over_pi(index, 0x4e441529U, 0xfc2757d1U, 0xf534ddc0U, 0xdb629599U);
  const U32 word2 = two_over_pi(index, 0xfc2757d1U, 0xf534ddc0U, 0xdb629599U, 0x3c439041U);
  const U32 word3 = two_over_pi(index, 0xf534ddc0U, 0xdb629599U, 0x3c439041U, 0xfe5163abU);
  const U32 rest = splat_u32(31) - shift;  // (w >> 1) >> (31 - shift) is w >> (32 - shift), also for shift 0
  const U64 p0 = to_u64((word0 << shift) | ((word1 >> 1) >> rest));
  const U64 p1 = to_u64((word1 << shift) | ((word2 >> 1) >> rest));
  const U64 p2 = to_u64((word2 << shift) | ((word3 >> 1) >> rest));
  const U64 m = to_u64((bits & splat_u32(0x7fffffU)) | splat_u32(0x800000U));
  const U64 product2 = mul_low(m, p2);
  const U64 product1 = mul_low(m, p1) + (product2 >> 32);
  const U32 high = low_u32(mul_low(m, p0) + (product1 >> 32));
  const U32 middle = low_u32(product1);
  const U32 low = low_u32(product2);
  // Two bits of quadrant, then a fraction that is taken as signed: in [-1/2, 1/2).
  const I32 a = to_i32((high << 2) | (middle >> 30));
  const U32 b = (middle << 2) | (low >> 30);
  const F64 tail = to_f64(b) * splat_f64(0x1p-64) + to_f64(low << 2) * splat_f64(0x1p-96);
  const F64 fraction = to_f64(a) * splat_f64(0x1p-32) + tail;
  const F64 r = fraction * splat_f64(0x1.921fb54442d18p0);
  const U32 quadrant = (high >> 30) + ((high >> 29) & splat_u32(1));
  const Mask negative = x < splat_f32(0.0F);
  return {select(negative, -r, r), select(negative, splat_u32(0) - quadrant, quadrant)};
}

NANSCOPE_FN TrigReduction reduce_trig(const F32& x) {
  TrigReduction result = reduce_trig(to_f64(x));
  const Mask large = abs(x) > splat_f32(1e8F);
  if (any(large)) {
    const TrigReduction far = reduce_trig_large(x);
    result.r = select(large, far.r, result.r);
    result.quadrant = select(large, far.quadrant, result.quadrant);
  }
  return result;
}

/// Taylor to r^17/17!, |r| <= pi/4. A product throughout, so that -0 stays -0.
NANSCOPE_FN F64 sin_series(const F64& r) {
  const F64 z = r * r;
  return r * (splat_f64(1.0) + z * horner(z, 1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0,
                                          -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0));
}

/// Taylor to r^18/18!.
NANSCOPE_FN F64 cos_series(const F64& r) {
  const F64 z = r * r;
  return splat_f64(1.0) + z * horner(z, -1.0 / 6402373705728000.0, 1.0 / 20922789888000.0, -1.0 / 87178291200.0,
                                     1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0,
                                     -0.5);
}

/// sin of quadrant pi/2 + r.
NANSCOPE_FN F64 sin_of(const F64& r, const U32& quadrant) {
  const Mask odd = (quadrant & splat_u32(1)) == splat_u32(1);
  const Mask lower = (quadrant & splat_u32(2)) == splat_u32(2);
  const F64 value = select(odd, cos_series(r), sin_series(r));
  return select(lower, -value, value);
}

NANSCOPE_FN F32 nan_unless_finite(const F32& x, const F32& value) {
  return select(is_finite(x), value, from_bits(splat_u32(kCanonicalNan)));
}

NANSCOPE_FN F64 nan_outside(const F64& x, const F64& value) {
  return select(abs(x) <= splat_f64(kCodyWaiteLimit), value, from_bits(splat_u64(0x7fffffffffffffffU)));
}

}  // namespace detail

NANSCOPE_FN F32 sin(const F32& x) {
  const detail::TrigReduction reduced = detail::reduce_trig(x);
  return detail::nan_unless_finite(x, to_f32(detail::sin_of(reduced.r, reduced.quadrant)));
}

NANSCOPE_FN F32 cos(const F32& x) {
  const detail::TrigReduction reduced = detail::reduce_trig(x);
  return detail::nan_unless_finite(x, to_f32(detail::sin_of(reduced.r, reduced.quadrant + splat_u32(1))));
}

NANSCOPE_FN F64 sin(const F64& x) {
  const detail::TrigReduction reduced = detail::reduce_trig(x);
  return detail::nan_outside(x, detail::sin_of(reduced.r, reduced.quadrant));
}

NANSCOPE_FN F64 cos(const F64& x) {
  const detail::TrigReduction reduced = detail::reduce_trig(x);
  return detail::nan_outside(x, detail::sin_of(reduced.r, reduced.quadrant + splat_u32(1)));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
