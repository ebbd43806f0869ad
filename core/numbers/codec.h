#pragma once
#include <bit>
#include <cstdint>

#include "core/numbers/format.h"
#include "core/numbers/format_table.h"
#include "core/numbers/lane.h"

/// Decode and encode of every format, in integers only, lane-generic.
///
/// `U` is an unsigned 32-bit lane type: `std::uint32_t` on the host and on a CUDA thread, a class
/// of 32 lanes on a CPU warp. It needs construction from std::uint32_t (broadcast), + - & | << >>
/// (shift counts `int` or `U`), == < > giving a mask with & | !, and select(mask, U, U) found by ADL.
/// Branches depend on the format and the overflow mode alone, which are uniform; data only selects.
///
/// Rules, the same for every format:
///   - rounding is to nearest, ties to the even code; f32 subnormal inputs are rounded like others;
///   - any NaN payload gives the format's one canonical NaN (f32: 0x7fffffff), without the sign;
///   - Overflow::saturate clamps to the largest finite value of the sign, Inf included (as CUDA's
///     satfinite);
///   - Overflow::overflow gives Inf of the sign (ieee) or the canonical NaN (fn, fnuz, e8m0);
///   - formats without NaN launder it: fp6 and fp4 give the largest positive value and int8/i32
///     give 0, as CUDA's converters do, in both modes; they clamp in both modes as well;
///   - fnuz formats have no -0: it becomes +0;
///   - e8m0 has no sign and no zero: the magnitude is encoded, 0 becomes 2^-127 (as CUDA's
///     __nv_cvt_float_to_e8m0 does); a tie goes to the larger power, its significand 2 being even;
///   - int8 encodes to -127..127 as symmetric quantizers do; code -128 decodes but is never made.
namespace nanscope {

/// What the codec needs of a FormatInfo, as plain integers that fold when they are constants.
struct CodecParams {
  Format format;
  Specials specials;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_sign;
  std::uint32_t max_finite_code;
  std::uint32_t nan_code;  ///< what a NaN is encoded to; a finite code in the formats without NaN
};

constexpr CodecParams codec_params(const FormatInfo& format) {
  const bool launders = format.specials == Specials::none && format.exponent_bits > 0;
  return {format.format,
          format.specials,
          format.exponent_bits,
          format.mantissa_bits,
          format.bias,
          format.has_sign,
          format.max_finite_code,
          launders ? format.max_finite_code : format.canonical_nan_code};
}

/// The same for a format known by its name; constexpr, so that kernels can make it a constant.
constexpr CodecParams codec_params(Format format) {
  return codec_params(kFormatTable[static_cast<std::size_t>(format)]);
}

/// Parameters as a constant; device code copies it into a constexpr local.
template <Format F>
inline constexpr CodecParams kCodecParams = codec_params(F);

/// The f32 NaN that every decode and computed store produces.
inline constexpr std::uint32_t kCanonicalNan = 0x7fffffffu;

/// How an e8m0 scale is rounded. MX quantizers floor (OCP MX 1.0, 6.3) or round up so that nothing
/// clips (cudaRoundPosInf); a plain cast rounds to nearest.
enum class E8m0Rounding : std::uint8_t { nearest, down, up };

namespace codec_detail {

/// Integer shift right by 1 <= shift <= 31, rounded to nearest, ties to even; value + 2^30 must fit.
template <class U>
NANSCOPE_HD U round_shift(const U& value, const U& shift) {
  const U one(1u);
  const U half = one << (shift - one);
  const U odd = (value >> shift) & one;
  return (value + (half - one) + odd) >> shift;
}

/// Replaces NaN by the canonical one.
template <class U>
NANSCOPE_HD U canonical_f32(const U& bits) {
  return select((bits & U(0x7fffffffu)) > U(0x7f800000u), U(kCanonicalNan), bits);
}

/// Fields of |f32| as sig x 2^(exponent - 150), sig < 2^24; subnormals have exponent 1.
template <class U>
struct Unpacked {
  U sig;
  U exponent;
};

template <class U>
NANSCOPE_HD Unpacked<U> unpack(const U& magnitude) {
  const U field = magnitude >> 23;
  const auto subnormal = field == U(0u);
  return {(magnitude & U(0x7fffffu)) | select(subnormal, U(0u), U(0x800000u)), select(subnormal, U(1u), field)};
}

/// Shifts left until bit `top` is set, by at most 31; counts down `exponent`. Zero stays zero.
template <class U>
NANSCOPE_HD void normalise(U& value, U& exponent, int top) {
  for (int step = 16; step > 0; step >>= 1) {
    if (step > top) continue;
    const auto low = value < U(1u << (top + 1 - step));
    value = select(low, value << step, value);
    exponent = select(low, exponent - U(static_cast<std::uint32_t>(step)), exponent);
  }
}

template <class U>
NANSCOPE_HD U decode_float(const CodecParams& p, const U& code) {
  const int m = p.mantissa_bits;
  const std::uint32_t magnitude_mask = (1u << (p.exponent_bits + m)) - 1u;
  const std::uint32_t exponent_mask = ((1u << p.exponent_bits) - 1u) << m;
  const U magnitude = code & U(magnitude_mask);
  const U sign = ((code >> (p.exponent_bits + m)) & U(1u)) << 31;

  U bits = (magnitude << (23 - m)) + U(static_cast<std::uint32_t>(127 - p.bias) << 23);
  if (p.bias != 127) {  // with f32's own bias a subnormal keeps its place
    U significand = magnitude;
    U exponent(static_cast<std::uint32_t>(128 - p.bias));
    normalise(significand, exponent, m);
    const U subnormal = ((exponent - U(1u)) << 23) + (significand << (23 - m));
    bits = select(magnitude < U(1u << m), subnormal, bits);
    bits = select(magnitude == U(0u), U(0u), bits);
  }
  if (p.specials == Specials::ieee) {
    bits = select(magnitude > U(exponent_mask), U(kCanonicalNan), bits);
    bits = select(magnitude == U(exponent_mask), U(0x7f800000u), bits);
    return select(bits == U(kCanonicalNan), bits, bits | sign);
  }
  if (p.specials == Specials::fn) return select(magnitude == U(magnitude_mask), U(kCanonicalNan), bits | sign);
  if (p.specials == Specials::fnuz) {
    return select((code & U(2u * magnitude_mask + 1u)) == U(p.nan_code), U(kCanonicalNan), bits | sign);
  }
  return bits | sign;
}

/// Two's complement to the nearest f32 (exact up to 24 bits).
template <class U>
NANSCOPE_HD U decode_int(const CodecParams& p, const U& code) {
  const int width = p.mantissa_bits + 1;
  const U negative = (code >> p.mantissa_bits) & U(1u);
  const U low = width == 32 ? code : code & U((1u << (width & 31)) - 1u);
  U magnitude = select(negative == U(1u), U(0u) - low, low);
  if (width < 32) magnitude = magnitude & U((1u << (width & 31)) - 1u);
  U exponent(158u);
  U top = magnitude;
  normalise(top, exponent, 31);
  // top has bit 31 set: drop 8 bits with rounding. Split so that nothing leaves 32 bits.
  const U half_lost = (top >> 1) | (top & U(1u));
  const U rounded = round_shift(half_lost, U(7u));
  const U bits = ((exponent - U(1u)) << 23) + rounded;
  return select(magnitude == U(0u), U(0u), bits | (negative << 31));
}

template <class U>
NANSCOPE_HD U encode_float(const CodecParams& p, const U& bits, Overflow overflow) {
  const int m = p.mantissa_bits;
  const U magnitude = bits & U(0x7fffffffu);
  const Unpacked<U> in = unpack(magnitude);

  // Exponent of the smallest normal: below it the significand is shifted further to the right.
  const U smallest(static_cast<std::uint32_t>(128 - p.bias));
  const auto below = in.exponent < smallest;
  const U deficit = select(below, smallest - in.exponent, U(0u));
  const U wanted = U(static_cast<std::uint32_t>(23 - m)) + deficit;
  const U shift = select(wanted > U(25u), U(25u), wanted);  // at 25 every 24-bit significand rounds to 0
  const U field = select(below, U(0u), in.exponent - smallest);
  // The rounded significand contains the implicit one, and a carry runs into the exponent.
  const U rounded = (field << m) + round_shift(in.sig, shift);

  const U largest(p.max_finite_code);
  U beyond = largest;
  if (overflow == Overflow::overflow) {
    if (p.specials == Specials::ieee) beyond = U(((1u << p.exponent_bits) - 1u) << m);
    if (p.specials == Specials::fn || p.specials == Specials::fnuz) beyond = U(p.nan_code);
  }
  const U sign = (bits >> 31) << (p.exponent_bits + m);
  const auto over = rounded > largest;
  const auto nan = magnitude > U(0x7f800000u);
  U code = select(over, beyond, rounded);
  U with_sign = code | sign;
  if (p.specials == Specials::fn) with_sign = select(code == U(p.nan_code), code, with_sign);
  if (p.specials == Specials::fnuz) with_sign = select(code == U(0u), code, with_sign);
  return select(nan, U(p.nan_code), with_sign);
}

template <class U>
NANSCOPE_HD U encode_int(const CodecParams& p, const U& bits) {
  const U magnitude = bits & U(0x7fffffffu);
  const Unpacked<U> in = unpack(magnitude);
  // value = sig x 2^(exponent - 150). From 2^31 on every value is beyond every integer format.
  const auto whole = in.exponent > U(149u);
  const U left = select(whole, select(in.exponent > U(157u), U(7u), in.exponent - U(150u)), U(0u));
  const U distance = select(whole, U(1u), U(150u) - in.exponent);
  const U shift = select(distance > U(25u), U(25u), distance);
  const U value = select(whole, in.sig << left, round_shift(in.sig, shift));
  const U largest(p.max_finite_code);
  const U clamped = select((in.exponent > U(157u)) | (value > largest), largest, value);
  U code = select((bits >> 31) == U(1u), U(0u) - clamped, clamped);
  if (p.mantissa_bits < 31) code = code & U((1u << ((p.mantissa_bits + 1) & 31)) - 1u);
  return select(magnitude > U(0x7f800000u), U(p.nan_code), code);
}

}  // namespace codec_detail

/// f32 bits to the e8m0 code of the magnitude.
template <class U>
NANSCOPE_HD U encode_e8m0_bits(const U& bits, E8m0Rounding rounding, Overflow overflow) {
  const U magnitude = bits & U(0x7fffffffu);
  const U field = magnitude >> 23;
  const U fraction = magnitude & U(0x7fffffu);
  U up(0u);
  if (rounding != E8m0Rounding::down) {
    // Code 0 is 2^-127 (f32 0x00400000); in the binade above it the fraction starts from there.
    const auto subnormal = field == U(0u);
    const U excess = select(subnormal, select(fraction > U(0x400000u), fraction - U(0x400000u), U(0u)), fraction);
    if (rounding == E8m0Rounding::up) {
      up = select(excess > U(0u), U(1u), U(0u));
    } else {
      // A tie goes up: of the significands 1 and 2 the even one (as torch and ml_dtypes do).
      const U half = select(subnormal, U(0x200000u), U(0x400000u));
      up = select(excess < half, U(0u), U(1u));
    }
  }
  const U code = field + up;
  const U beyond(overflow == Overflow::saturate ? 0xfeu : 0xffu);
  const U capped = select(code > U(0xfeu), beyond, code);  // Inf has the field 0xff
  return select(magnitude > U(0x7f800000u), U(0xffu), capped);
}

/// Code (low bits of a lane; higher bits are ignored) to f32 bits. Exact but for i32 beyond 2^24.
template <class U>
NANSCOPE_HD U decode_bits(const CodecParams& p, const U& code) {
  if (p.format == Format::f32) return codec_detail::canonical_f32(code);
  if (p.specials == Specials::e8m0) {
    const U low = code & U(0xffu);
    const U bits = select(low == U(0u), U(0x00400000u), low << 23);
    return select(low == U(0xffu), U(kCanonicalNan), bits);
  }
  if (p.exponent_bits == 0) return codec_detail::decode_int(p, code);
  return codec_detail::decode_float(p, code);
}

/// f32 bits to a code, in the low bits of the lane.
template <class U>
NANSCOPE_HD U encode_bits(const CodecParams& p, const U& bits, Overflow overflow) {
  if (p.format == Format::f32) {
    const U canonical = codec_detail::canonical_f32(bits);
    if (overflow == Overflow::overflow) return canonical;
    const auto infinite = (canonical & U(0x7fffffffu)) == U(0x7f800000u);
    return select(infinite, (bits & U(0x80000000u)) | U(p.max_finite_code), canonical);
  }
  if (p.specials == Specials::e8m0) return encode_e8m0_bits(bits, E8m0Rounding::nearest, overflow);
  if (p.exponent_bits == 0) return codec_detail::encode_int(p, bits);
  return codec_detail::encode_float(p, bits, overflow);
}

/// The same with the format as a constant: everything about it folds at compile time.
template <Format F, class U>
NANSCOPE_HD U decode_bits(const U& code) {
  constexpr CodecParams p = kCodecParams<F>;
  return decode_bits(p, code);
}

template <Format F, class U>
NANSCOPE_HD U encode_bits(const U& bits, Overflow overflow) {
  constexpr CodecParams p = kCodecParams<F>;
  return encode_bits(p, bits, overflow);
}

/// Scalar conveniences of the host.
inline float decode(Format format, std::uint32_t code) {
  return std::bit_cast<float>(decode_bits(codec_params(format), code));
}

inline std::uint32_t encode(Format format, float value, Overflow overflow) {
  return encode_bits(codec_params(format), std::bit_cast<std::uint32_t>(value), overflow);
}

}  // namespace nanscope
