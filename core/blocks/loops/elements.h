#pragma once
#include "core/blocks/block_loops.h"
#include "core/blocks/loops/lanes.h"
#include "core/blocks/loops/packing.h"

/// Codes of elements under their blocks' scales.
namespace nanscope::NANSCOPE_ISA {

/// The constants of a format, in registers. Exponents stay where they are in an f32's bits.
struct Rounding {
  F largest;
  I lowest;
  I finest;  ///< from an exponent to that of the number whose unit is the code's
  U sign;
  U offset;
  std::int64_t ahead;  ///< memory is waited for while codes are made
  int dropped;
  int sign_shift;
  explicit Rounding(const BlockPlan& plan)
      : largest(splat(plan.largest)),
        lowest(splat(plan.lowest << 23)),
        finest(splat((23 - plan.kept) << 23)),
        sign(splat(1U << plan.sign_shift)),
        offset(splat((static_cast<std::uint32_t>(plan.lowest) << plan.kept) +
                     (static_cast<std::uint32_t>(23 - plan.kept) << 23))),
        ahead(plan.ahead),
        dropped(23 - plan.kept),
        sign_shift(31 - plan.sign_shift) {}
};

/// Finite scaled elements, by an addition that leaves no room for what is below a code's unit. `signs`: a number of
/// their sign.
template <Ties kTies, ZeroSign kZero>
NANSCOPE_LOOP U codes_of(const F& scaled, const F& signs, const Rounding& r) {
  const F magnitude = least(magnitudes_of(scaled), r.largest);
  const I exponent = most(as<I>(as<U>(magnitude) & 0x7f800000U), r.lowest);
  const F anchor = as<F>(exponent + r.finest);
  const F sum = magnitude + anchor;  // rounded to even in units of the code
  // The exponent's share, and how many units above it.
  U code = (as<U>(exponent) >> r.dropped) + (as<U>(sum) - as<U>(exponent)) - r.offset;
  if constexpr (kTies != Ties::even) {
    const F off = magnitude - (sum - anchor);  // exact
    const U half = as<U>(exponent + r.finest) - (24U << 23);
    if constexpr (kTies == Ties::away_sum) code -= as<U>(off >= as<F>(half - 1U));  // true is -1
    if constexpr (kTies == Ties::down) code += as<U>(off == -as<F>(half));
  }
  F signed_by = signs;
  if constexpr (kZero == ZeroSign::scaled_positive) signed_by = signs + 0.0F;  // -0 becomes 0
  U sign = as<U>(signed_by) >> r.sign_shift;
  if constexpr (kZero == ZeroSign::positive) sign &= (code + 0x7fffffffU) >> r.sign_shift;  // all but code 0
  if constexpr (kZero == ZeroSign::scaled_negative)
    sign |= ~(as<U>(magnitudes_of(signs)) + 0x7fffffffU) >> r.sign_shift;
  return code | (sign & r.sign);
}

/// codes_of() of e2m1 with ties to even.
template <ZeroSign kZero>
NANSCOPE_LOOP U e2m1_codes_of(const F& scaled, const F& signs, [[maybe_unused]] const Rounding& r) {
#if defined(__AVX512F__)
  // All middles between values are quarters, and 2^21 leaves room for no less: how many whole ones there are says which
  // middles are not above. Where one is met, the even code may be the one below.
  constexpr I kBelow4 = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6};
  constexpr I kFrom4 = {6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
  constexpr F kDownBelow4 = {-1, 0.25F, -1, -1, -1, 1.25F, -1, -1, -1, -1, 2.5F, -1, -1, -1, -1, -1};
  constexpr F kDownFrom4 = {-1, -1, -1, -1, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  const __m512 magnitude = as<__m512>(least(magnitudes_of(scaled), splat(6.0F)));
  const __m512i quarters =
      as<__m512i>(_mm512_add_round_ps(magnitude, _mm512_set1_ps(0x1p21F), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
  const __m512i up = _mm512_permutex2var_epi32(as<__m512i>(kBelow4), quarters, as<__m512i>(kFrom4));
  const __m512 down = _mm512_permutex2var_ps(as<__m512>(kDownBelow4), quarters, as<__m512>(kDownFrom4));
  const __mmask16 is_down = _mm512_cmp_ps_mask(magnitude, down, _CMP_EQ_OQ);
  const __m512i code = _mm512_mask_sub_epi32(up, is_down, up, _mm512_set1_epi32(1));
  const __mmask16 negative = kZero == ZeroSign::scaled_positive
                                 ? _mm512_cmp_ps_mask(as<__m512>(signs), _mm512_setzero_ps(), _CMP_LT_OQ)
                                 : _mm512_movepi32_mask(as<__m512i>(signs));
  return as<U>(_mm512_mask_or_epi32(code, negative, code, _mm512_set1_epi32(8)));
#else
  return codes_of<Ties::even, kZero>(scaled, signs, r);
#endif
}

/// x / divisor without a division, rounded as one: of an estimate within two units two corrections, each by the exact
/// remainder (P. Markstein, IA-64 and Elementary Functions, 2000: a quotient within a unit becomes the nearest one by
/// the nearest reciprocal). `divisor` is 2^-60 to 1, so that no quotient is rounded to 0. Not so: -0 becomes 0; an
/// infinite quotient is NaN, which codes_of() takes for the largest; below 2^-80, where any code is 0, remainders may
/// be rounded.
NANSCOPE_LOOP F divided(const F& x, const F& divisor, const F& reciprocal) {
  const F near = x * reciprocal;
  const F nearer = fused(fused(-near, divisor, x), reciprocal, near);
  return fused(fused(-nearer, divisor, x), reciprocal, nearer);
}

/// Whether divided() may be used for 16 blocks, and by which reciprocals.
NANSCOPE_LOOP bool reciprocals(const float* factors, float* to) {
  if (!kFused) return false;
  const F divisors = load<F>(factors);
  store(to, 1.0F / divisors);
  return !any((divisors < 0x1p-60F) | (divisors > 1.0F) | (divisors != divisors));
}

/// Where codes go: one a byte, or two, the first in the low half.
struct CodeBytes {
  static constexpr bool kE2m1 = false;  ///< of that alone
  std::uint8_t* to;
  void store_chunk(std::int64_t place, const U& codes) const { store_codes(to + place, codes); }
  void store_four(std::int64_t place, const U& a, const U& b, const U& c, const U& d) const {
    store_codes(to + place, a, b, c, d);
  }
};
struct CodeNibbles {
  static constexpr bool kE2m1 = true;
  std::uint8_t* to;
  void store_chunk(std::int64_t place, const U& codes) const {
    std::uint8_t bytes[kChunk];
    store_codes(bytes, codes);
    pack_low_first(bytes, kChunk / 2, to + place / 2);
  }
  void store_four(std::int64_t place, const U& a, const U& b, const U& c, const U& d) const {
    std::uint8_t bytes[4 * kChunk];
    store_codes(bytes, a, b, c, d);
    ask_for_store(to + place / 2, kBlockPiece / 2);
    pack_four_chunks(bytes, to + place / 2);
  }
};

enum class Step : std::uint8_t { multiply, divide, divided };

/// Of a block.
struct Factor {
  F factor;
  F reciprocal;
};

template <Step kStep>
NANSCOPE_LOOP Factor factor_of(const float* factors, const float* inverse, std::int64_t block) {
  return {splat(factors[block]), kStep == Step::divided ? splat(inverse[block]) : F{}};
}

template <Ties kTies, ZeroSign kZero, Step kStep, class Codes>
NANSCOPE_LOOP U codes_at(const float* x, const Factor& by, const Rounding& rounding) {
  const F given = load<F>(x);
  __builtin_prefetch(x + rounding.ahead);
  F scaled;
  if constexpr (kStep == Step::multiply) scaled = given * by.factor;
  if constexpr (kStep == Step::divide) scaled = given / by.factor;
  if constexpr (kStep == Step::divided) scaled = divided(given, by.factor, by.reciprocal);
  const F& signs = kStep == Step::divided ? given : scaled;
  if constexpr (Codes::kE2m1) return e2m1_codes_of<kZero>(scaled, signs, rounding);
  return codes_of<kTies, kZero>(scaled, signs, rounding);
}

/// Calls make(place, block), which gives codes, for all chunks and stores them. kWidth: 16, 32, or 64 for a multiple of
/// it.
template <std::int64_t kWidth, class Codes, class Make>
NANSCOPE_LOOP void make_codes(std::int64_t width, std::int64_t blocks, const Codes& codes, const Make& make) {
  constexpr std::int64_t kFour = std::int64_t{4} * kChunk;
  const std::int64_t all = blocks * width;
  std::int64_t place = 0;
  if constexpr (kFours) {
    for (std::int64_t block = 0; place + kFour <= all; place += kFour) {
      constexpr std::int64_t kChunks = kWidth / kChunk;
      codes.store_four(place, make(place, block), make(place + kChunk, block + 1 / kChunks),
                       make(place + 2 * kChunk, block + 2 / kChunks), make(place + 3 * kChunk, block + 3 / kChunks));
      block = kWidth < kFour ? block + kFour / kWidth : (place + kFour) / width;
    }
  }
  for (std::int64_t block = place / width; block < blocks; ++block) {
    for (const std::int64_t end = (block + 1) * width; place < end; place += kChunk) {
      codes.store_chunk(place, make(place, block));
    }
  }
}

/// The same by the width, which is looked at once.
template <class Codes, class Make>
NANSCOPE_LOOP void make_codes(std::int64_t width, std::int64_t blocks, const Codes& codes, const Make& make) {
  if (kFours && width == 16) return make_codes<16>(width, blocks, codes, make);
  if (kFours && width == 32) return make_codes<32>(width, blocks, codes, make);
  make_codes<64>(width, blocks, codes, make);
}

template <Ties kTies, ZeroSign kZero, Step kStep, class Codes>
NANSCOPE_LOOP void float_blocks(const Rounding& rounding, std::int64_t width, const float* x, std::int64_t blocks,
                                const float* factors, const float* inverse, const Codes& codes) {
  make_codes(
      width, blocks, codes, [&](std::int64_t place, std::int64_t block) __attribute__((always_inline)) {
        return codes_at<kTies, kZero, kStep, Codes>(x + place, factor_of<kStep>(factors, inverse, block), rounding);
      });
}

template <Ties kTies, ZeroSign kZero, class Codes>
NANSCOPE_LOOP void divided_blocks(const Rounding& rounding, std::int64_t width, const float* x, std::int64_t blocks,
                                  const float* factors, std::uint8_t* codes) {
  constexpr std::int64_t kPerByte = Codes::kE2m1 ? 2 : 1;
  for (std::int64_t first = 0; first < blocks; first += kChunk) {
    const std::int64_t count = blocks - first < kChunk ? blocks - first : kChunk;
    float inverse[kChunk];
    if (reciprocals(factors + first, inverse)) {
      float_blocks<kTies, kZero, Step::divided>(rounding, width, x, count, factors + first, inverse, Codes{codes});
    } else {
      float_blocks<kTies, kZero, Step::divide>(rounding, width, x, count, factors + first, inverse, Codes{codes});
    }
    x += count * width;
    codes += count * width / kPerByte;
  }
}

template <Ties kTies, ZeroSign kZero, class Codes>
NANSCOPE_LOOP void float_elements_to(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                                     std::uint8_t* codes) {
  const Rounding rounding(plan);
  const std::int64_t width = plan.format.block.columns;
  const bool divides = plan.format.scaling == Scaling::divide && plan.format.scale != Format::e8m0;
  if (divides) return divided_blocks<kTies, kZero, Codes>(rounding, width, x, blocks, factors, codes);
  float_blocks<kTies, kZero, Step::multiply>(rounding, width, x, blocks, factors, nullptr, Codes{codes});
}

template <Ties kTies, ZeroSign kZero>
static void float_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                           std::uint8_t* codes) {
  if (kTies == Ties::even && plan.packed) {
    return float_elements_to<kTies, kZero, CodeNibbles>(plan, x, blocks, factors, codes);
  }
  float_elements_to<kTies, kZero, CodeBytes>(plan, x, blocks, factors, codes);
}

/// q4_0's codes -8..7.
NANSCOPE_LOOP U offset_codes(const F& scaled) {
  const I q = __builtin_convertvector(least(scaled + 8.5F, splat(15.5F)), I);
  return as<U>(most(q, I{}) - 8);
}

/// int8 with ties away from zero.
NANSCOPE_LOOP U integer_codes(const F& scaled) {
  const F magnitude = least(magnitudes_of(scaled), splat(127.0F));
  const I whole = __builtin_convertvector(magnitude, I);
  const I n = whole - as<I>(magnitude - __builtin_convertvector(whole, F) >= 0.5F);
  const I negative = as<I>(scaled) >> 31;
  return as<U>((n ^ negative) - negative);
}

template <bool kOffset>
static void integer_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                             std::uint8_t* codes) {
  make_codes(
      plan.format.block.columns, blocks,
      CodeBytes{codes}, [&](std::int64_t place, std::int64_t block) __attribute__((always_inline)) {
        const F scaled = load<F>(x + place) * factors[block];
        __builtin_prefetch(x + place + plan.ahead);
        return (kOffset ? offset_codes(scaled) : integer_codes(scaled)) & 0xffU;
      });
}

/// How many of the middles between codes of e2m1, times the scale, are below |x|.
class Bounds {
 public:
  explicit Bounds(float factor) : bounds_(kMiddles * factor) {}
#if defined(__AVX512F__)
  /// By halves: one of seven is looked up by what the ones before said.
  U below(const F& magnitude) const {
    const __m512 m = as<__m512>(magnitude);
    const __m512 bounds = as<__m512>(bounds_);
    const __m512i above_4 = _mm512_set1_epi32(3);
    __mmask16 more = _mm512_cmp_ps_mask(m, _mm512_permutexvar_ps(above_4, bounds), _CMP_GT_OQ);
    __m512i code = _mm512_maskz_set1_epi32(more, 4);
    const __m512i at = _mm512_add_epi32(code, _mm512_set1_epi32(1));
    more = _mm512_cmp_ps_mask(m, _mm512_permutexvar_ps(at, bounds), _CMP_GT_OQ);
    code = _mm512_mask_add_epi32(code, more, code, _mm512_set1_epi32(2));
    more = _mm512_cmp_ps_mask(m, _mm512_permutexvar_ps(code, bounds), _CMP_GT_OQ);
    return as<U>(_mm512_mask_add_epi32(code, more, code, _mm512_set1_epi32(1)));
  }
#else
  U below(const F& magnitude) const {
    I code = {};
    for (int i = 0; i < 7; ++i) code -= magnitude > splat(bounds_[i]);
    return as<U>(code);
  }
#endif

 private:
  static constexpr F kMiddles = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  F bounds_;
};

/// Scaling::bounds, +0 for 0.
static void bounded_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                             std::uint8_t* codes) {
  const std::int64_t width = plan.format.block.columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Bounds bounds(factors[block]);
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      const F given = load<F>(x + chunk);
      __builtin_prefetch(x + chunk + plan.ahead);
      const U code = bounds.below(magnitudes_of(given));
      const U sign = pick(as<I>(code == 0U), U{}, as<U>(given) >> 28 & 8U);
      store_codes(codes + chunk, code | sign);
    }
    x += width;
    codes += width;
  }
}

static void elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                     std::uint8_t* codes) {
  const BlockFormat& f = plan.format;
  if (f.scaling == Scaling::bounds) return bounded_elements(plan, x, blocks, factors, codes);
  if (f.ties == Ties::offset) return integer_elements<true>(plan, x, blocks, factors, codes);
  if (plan.integer) return integer_elements<false>(plan, x, blocks, factors, codes);
  if (f.ties == Ties::away_sum) {
    return float_elements<Ties::away_sum, ZeroSign::scaled_positive>(plan, x, blocks, factors, codes);
  }
  if (f.ties == Ties::down && f.zero_sign == ZeroSign::positive) {
    return float_elements<Ties::down, ZeroSign::positive>(plan, x, blocks, factors, codes);
  }
  if (f.ties == Ties::down) {
    return float_elements<Ties::down, ZeroSign::scaled_negative>(plan, x, blocks, factors, codes);
  }
  if (f.zero_sign == ZeroSign::scaled_positive) {
    return float_elements<Ties::even, ZeroSign::scaled_positive>(plan, x, blocks, factors, codes);
  }
  float_elements<Ties::even, ZeroSign::kept>(plan, x, blocks, factors, codes);
}

}  // namespace nanscope::NANSCOPE_ISA
