#pragma once
#include <bit>
#include <cstdint>

#include "core/blocks/block_format.h"
#include "core/numbers/codec.h"

/// A block's scale from its largest magnitude, one source for hosts and CUDA threads.
///
/// Only f32 division, multiplication and integers: correctly rounded, so the bits are the same everywhere.
namespace nanscope {

/// The scale of one block, and how codes are made with it.
struct BlockScale {
  std::uint32_t code = 0;  ///< as stored
  float factor = 1;        ///< elements are multiplied by it, or divided
  bool multiply = false;
  bool filled = false;  ///< every code is `fill`, whatever the elements are
  std::uint8_t fill = 0;
};

namespace block_detail {

NANSCOPE_HD std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

NANSCOPE_HD float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

constexpr std::uint32_t kInfBits = 0x7f800000U;

/// How many units in the last place beside 2^k the f32 nearest to a log2 is k already. Below 2^k a unit is 2^-24 of it,
/// above 2^-23. The f32 spacing at k, halved and times ln 2, in those units: 2^j ln 2 below and half of it above,
/// where j is the exponent of the f32 numbers beside k.
NANSCOPE_HD std::uint32_t logarithm_slack(std::int32_t k, bool below) {
  if (k == 0) return 0;
  const bool positive = k > 0;
  const auto size = static_cast<std::uint32_t>(positive ? k : -k);
  // Towards zero the numbers beside a power of two are in the binade below it.
  const std::uint32_t beside = positive == below ? size - 1 : size;
  constexpr std::uint32_t kSlack[8] = {0, 1, 2, 5, 11, 22, 44, 88};  // floor(2^j ln 2)
  int j = -1;
  for (std::uint32_t rest = beside; rest > 0; rest >>= 1) ++j;
  if (below) return j < 0 ? 0 : kSlack[j];
  return j < 1 ? 0 : kSlack[j - 1];
}

/// The exponent field that floor(log2 value) has; 0 for subnormals and 0.
NANSCOPE_HD std::int32_t floor_field(std::uint32_t bits, Logarithm logarithm) {
  const auto field = static_cast<std::int32_t>(bits >> 23);
  if (logarithm == Logarithm::exact || field == 0 || field == 255) return field;
  const std::uint32_t short_of_next = 0x800000U - (bits & 0x7fffffU);
  return short_of_next <= logarithm_slack(field + 1 - 127, true) ? field + 1 : field;
}

/// The e8m0 code of ceil(log2 value), no higher than 254.
NANSCOPE_HD std::uint32_t ceil_code(std::uint32_t bits, Logarithm logarithm) {
  const auto field = static_cast<std::int32_t>(bits >> 23);
  if (logarithm == Logarithm::rounded && field != 255) {
    // 2^-127 is the subnormal 0x00400000: its units are twice as large.
    const std::uint32_t excess = field == 0 ? (bits - 0x400000U) * 2 : bits & 0x7fffffU;
    const bool above = field != 0 || bits >= 0x400000U;
    if (above && excess <= logarithm_slack(field - 127, false)) return static_cast<std::uint32_t>(field);
  }
  return encode_e8m0_bits(bits, E8m0Rounding::up, Overflow::saturate);
}

NANSCOPE_HD std::uint32_t clamped_code(std::int32_t code) {
  return static_cast<std::uint32_t>(code < 0 ? 0 : code > 254 ? 254 : code);
}

/// gguf's code of 2^(floor(log2 value) - top): a byte that wraps below 0, and 0 for 0.
NANSCOPE_HD std::uint32_t wrapped_code(std::uint32_t bits, Logarithm logarithm, std::int32_t top) {
  if (bits == 0) return 0;
  std::int32_t field = floor_field(bits, logarithm);
  if (field == 0) {
    field = 1;
    for (std::uint32_t rest = bits; rest < 0x800000U; rest <<= 1) --field;
  }
  return static_cast<std::uint32_t>(field - top) & 0xffU;
}

/// llama.cpp's f32 to unsigned e4m3.
NANSCOPE_HD std::uint32_t ggml_e4m3(float value) {
  const std::uint32_t bits = bits_of(value);
  if (value <= 0.0F) return 0;
  const std::int32_t field = static_cast<std::int32_t>(bits >> 23) - 120;
  if (field >= 15 || bits > kInfBits) return 0x7e;
  if (field <= 0) {
    const auto units = static_cast<std::uint32_t>(value * 512.0F + 0.5F);
    return units > 7 ? 7 : units;
  }
  const std::uint32_t code = (static_cast<std::uint32_t>(field) << 3) + ((bits >> 20) & 7U) + ((bits >> 19) & 1U);
  return code >= 15U << 3 ? 0x7e : code;
}

NANSCOPE_HD std::uint32_t encode_scale(const BlockFormat& f, float value, Overflow overflow) {
  const std::uint32_t bits = bits_of(value);
  switch (f.scale) {
    case Format::e8m0:
      return encode_e8m0_bits(bits, E8m0Rounding::up, overflow);
    case Format::e4m3:
      return f.scale_cast == ScaleCast::ggml ? ggml_e4m3(value) : encode_bits<Format::e4m3>(bits, overflow);
    case Format::f16:
      return encode_bits<Format::f16>(bits, Overflow::overflow);
    case Format::bf16:
      return encode_bits<Format::bf16>(bits, Overflow::overflow);
    default:
      return bits;
  }
}

/// The code of NaN, and of 1, in the scale's format.
NANSCOPE_HD std::uint32_t nan_scale(Format scale) {
  return scale == Format::e8m0 ? 0xffU : scale == Format::e4m3 ? 0x7fU : scale == Format::f32 ? kCanonicalNan : 0x7fffU;
}

}  // namespace block_detail

/// The value that a scale's code stands for, exact.
NANSCOPE_HD float block_scale_value(const BlockFormat& f, std::uint32_t code) {
  if (f.reading == ScaleReading::ggml && f.scale == Format::e8m0 && code == 0xffU) {
    return block_detail::float_of(block_detail::kInfBits);  // decoding multiplies by half of it
  }
  if (f.reading == ScaleReading::ggml && f.scale == Format::e4m3) {
    const std::uint32_t low = code & 0x7fU;
    if (code == 0x7fU) return 0.0F;
    return low == 0x7fU ? 480.0F : block_detail::float_of(decode_bits<Format::e4m3>(low));
  }
  std::uint32_t bits = code;
  if (f.scale == Format::e8m0) bits = decode_bits<Format::e8m0>(code);
  if (f.scale == Format::e4m3) bits = decode_bits<Format::e4m3>(code);
  if (f.scale == Format::f16) bits = decode_bits<Format::f16>(code);
  if (f.scale == Format::bf16) bits = decode_bits<Format::bf16>(code);
  return block_detail::float_of(bits);
}

/// What elements are divided by, and, but for SecondScale::amax, what a code's value is multiplied by.
NANSCOPE_HD float block_whole(const BlockFormat& f, float scale, float second) {
  if (f.second == SecondScale::none) return scale;
  if (f.second == SecondScale::multiplier) return scale * second;
  if (f.second == SecondScale::divisor) return scale / second;
  return 1.0F / (f.second_full / second) * scale;
}

/// The scale before it is rounded to its format, of the rules that are no powers of two, and of rceil.
NANSCOPE_HD float unrounded_block_scale(const BlockFormat& f, float m, float largest, float second) {
  if (f.rule == ScaleRule::max_over_amax) return 1.0F / (1.0F / m * largest);
  if (f.second == SecondScale::none) return f.largest_reciprocal ? m * (1.0F / largest) : m / largest;
  if (f.second_use == SecondUse::divide_product) return m / (largest * second);
  const float alone = m / largest;
  if (f.second == SecondScale::amax) return second == 0 ? 0 : alone * (f.second_full / second);
  return f.second_use == SecondUse::multiply ? alone * second : alone / second;
}

namespace block_detail {

/// The code of the scale for a finite m, and what it was before it was rounded.
NANSCOPE_HD std::uint32_t scale_code(const BlockFormat& f, float m, float second, float expansion, Overflow overflow,
                                     float& unrounded) {
  const std::uint32_t bits = bits_of(m) & 0x7fffffffU;
  const std::int32_t top = static_cast<std::int32_t>((bits_of(f.largest) & 0x7fffffffU) >> 23) - 127;
  switch (f.rule) {
    case ScaleRule::floor:
      if (f.reading == ScaleReading::ggml) return wrapped_code(bits, f.logarithm, top);
      return clamped_code(floor_field(bits, f.logarithm) - top);
    case ScaleRule::ceil: {
      const auto field = static_cast<std::int32_t>(bits >> 23);
      return clamped_code(field + ((bits & 0x7fffffU) != 0 ? 1 : 0) - top);
    }
    case ScaleRule::even:
      return clamped_code(static_cast<std::int32_t>((bits + (1U << (22 - f.even_bits))) >> 23) - top);
    case ScaleRule::rceil:
      unrounded = unrounded_block_scale(f, m, f.largest, second);
      if (overflow == Overflow::overflow) return encode_scale(f, unrounded, overflow);
      return ceil_code(bits_of(unrounded), f.logarithm);
    default:
      break;
  }
  unrounded = unrounded_block_scale(f, m, f.largest, second) * expansion;
  const bool zero = f.rule == ScaleRule::max_over_amax ? m == 0 : unrounded == 0;
  if (f.scale_of_zero > 0 && zero) unrounded = f.scale_of_zero;
  if (f.smallest_scale > 0 && unrounded < f.smallest_scale) unrounded = f.smallest_scale;
  return encode_scale(f, unrounded, overflow);
}

NANSCOPE_HD BlockScale filled(std::uint32_t code, std::uint8_t fill) {
  BlockScale out;
  out.code = code;
  out.filled = true;
  out.fill = fill;
  return out;
}

/// A block that holds a NaN or an Inf, of the kinds that are no arithmetic.
NANSCOPE_HD BlockScale bad_block(const BlockFormat& f, BadBlock kind, std::uint8_t nan_code) {
  BlockScale out;
  switch (kind) {
    case BadBlock::laundered:
      return filled(0, f.laundered_code);
    case BadBlock::unit_scale:
      out.code = encode_scale(f, 1.0F, Overflow::saturate);
      return out;
    case BadBlock::divide_by_inf:
    case BadBlock::one_for_inf:
      out.code = kind == BadBlock::one_for_inf ? encode_scale(f, 1.0F, Overflow::saturate) : nan_scale(f.scale);
      out.factor = 0;
      out.multiply = true;
      return out;
    default:
      return filled(nan_scale(f.scale), nan_code);
  }
}

}  // namespace block_detail

/// The scale of a block whose element of largest magnitude is `extreme` (with its sign; NaN where the block holds
/// one). `nan_code`: the element code of NaN. `expansion`: 1.5 for 4 as the largest code of four-over-six. `overflow`:
/// what becomes of scales beyond the largest of their format.
NANSCOPE_HD BlockScale block_scale(const BlockFormat& f, float extreme, float second, std::uint8_t nan_code,
                                   float expansion = 1, Overflow overflow = Overflow::saturate) {
  using namespace block_detail;
  const std::uint32_t magnitude = bits_of(extreme) & 0x7fffffffU;
  float m = f.rule == ScaleRule::signed_extreme ? extreme : float_of(magnitude);
  if (magnitude >= kInfBits) {
    const BadBlock kind = magnitude > kInfBits ? f.nan : f.inf;
    if (kind == BadBlock::as_zero) {
      m = 0;
    } else if (kind != BadBlock::arithmetic) {
      return bad_block(f, kind, nan_code);
    }
  }
  if (f.smallest_amax > 0 && m < f.smallest_amax) m = f.smallest_amax;
  BlockScale out;
  float unrounded = m;
  out.code = scale_code(f, m, second, expansion, overflow, unrounded);
  if (f.scale_of_code_0 > 0 && out.code == 0) out.code = encode_scale(f, f.scale_of_code_0, overflow);
  const float scale = f.codes_from_unrounded ? unrounded : block_scale_value(f, out.code);
  float whole = block_whole(f, scale, second);
  if (f.divisor_at_code_0 > 0 && out.code == 0) whole = f.divisor_at_code_0;
  const bool by_inverse = f.rule == ScaleRule::max_over_amax && m != 0;  // infinite where the scale is 0
  if (whole == 0 && !f.divides_by_zero && !by_inverse) return filled(out.code, 0);
  out.multiply = f.scaling == Scaling::reciprocal || f.scaling == Scaling::reciprocal_second;
  out.factor = whole;
  if (f.scaling == Scaling::reciprocal) out.factor = 1.0F / whole;
  if (f.scaling == Scaling::reciprocal_second) out.factor = (1.0F / second) / scale;
  if (by_inverse) out.factor = 1.0F / m * f.largest;
  return out;
}

/// The second scale for a tensor whose largest magnitude is `amax`; 1 where the format has none. The divisor is made as
/// torch divides a number by a tensor: times its reciprocal.
NANSCOPE_HD float second_block_scale(const BlockFormat& f, float amax) {
  if (f.second == SecondScale::none) return 1.0F;
  if (f.second == SecondScale::amax) return amax;
  return f.second == SecondScale::multiplier ? amax / f.second_full : 1.0F / amax * f.second_full;
}

}  // namespace nanscope
