/// Compiled once an instruction set, as namespace NANSCOPE_ISA: nothing here may be shared with code that runs on every
/// machine, so all is forced inline or local. A vector is of 16 elements everywhere, of however many registers.
#include <cstring>

#include "core/blocks/block_loops.h"
#include "core/numbers/codec.h"

#define NANSCOPE_LOOP static inline __attribute__((always_inline))

namespace nanscope::NANSCOPE_ISA {
namespace {

constexpr int kChunk = 16;
typedef float F __attribute__((vector_size(64)));               // NOLINT: as the compilers' manuals write it
typedef std::uint32_t U __attribute__((vector_size(64)));       // NOLINT
typedef std::int32_t I __attribute__((vector_size(64)));        // NOLINT
typedef std::uint8_t Bytes __attribute__((vector_size(16)));    // NOLINT
typedef std::uint8_t Bytes32 __attribute__((vector_size(32)));  // NOLINT
typedef std::uint16_t Pairs __attribute__((vector_size(32)));   // NOLINT
typedef std::uint32_t Words __attribute__((vector_size(16)));   // NOLINT

template <class To, class From>
NANSCOPE_LOOP To as(const From& from) {
  return __builtin_bit_cast(To, from);
}
template <class T>
NANSCOPE_LOOP T load(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
template <class T>
NANSCOPE_LOOP void store(void* p, const T& v) {
  std::memcpy(p, &v, sizeof(T));
}
template <class T>
NANSCOPE_LOOP T pick(const I& mask, const T& yes, const T& no) {
  return mask ? yes : no;
}
NANSCOPE_LOOP F splat(float value) { return value - F{}; }  // keeps -0
NANSCOPE_LOOP U splat(std::uint32_t value) { return U{} + value; }
NANSCOPE_LOOP I splat(std::int32_t value) { return I{} + value; }
NANSCOPE_LOOP F least(const F& a, const F& b) { return pick(a < b, a, b); }
NANSCOPE_LOOP I most(const I& a, const I& b) { return pick(a > b, a, b); }
NANSCOPE_LOOP I fields(const F& v) { return as<I>(as<U>(v) >> 23); }
NANSCOPE_LOOP F magnitudes_of(const F& v) { return as<F>(as<U>(v) & 0x7fffffffU); }
NANSCOPE_LOOP std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
NANSCOPE_LOOP float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

NANSCOPE_LOOP std::int32_t largest_of(const I& v) {
  typedef std::int32_t I8 __attribute__((vector_size(32)));  // NOLINT
  typedef std::int32_t I4 __attribute__((vector_size(16)));  // NOLINT
  const I8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const I8 b = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const I8 m = a > b ? a : b;
  const I4 c = __builtin_shufflevector(m, m, 0, 1, 2, 3);
  const I4 d = __builtin_shufflevector(m, m, 4, 5, 6, 7);
  const I4 n = c > d ? c : d;
  const I4 e = __builtin_shufflevector(n, n, 2, 3, 0, 1);
  const I4 o = n > e ? n : e;
  return o[0] > o[1] ? o[0] : o[1];
}

void magnitudes(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    I largest = {};
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      largest = most(as<I>(magnitudes_of(load<F>(x + chunk))), largest);
    }
    const auto before = static_cast<std::int32_t>(bits_of(extremes[block]));
    const std::int32_t now = largest_of(largest);
    extremes[block] = float_of(static_cast<std::uint32_t>(now > before ? now : before));
    x += width;
  }
}

void signed_extremes(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    I positive = {};
    I negative = {};
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      const I bits = load<I>(x + chunk);
      positive = most(bits, positive);
      negative = most((bits & 0x7fffffff) & (bits < 0), negative);
    }
    const std::int32_t up = largest_of(positive);
    const std::int32_t down = largest_of(negative);
    const float either =
        up > down ? float_of(static_cast<std::uint32_t>(up)) : float_of(static_cast<std::uint32_t>(down) | 0x80000000U);
    extremes[block] = up == down ? float_of(kCanonicalNan) : either;
    x += width;
  }
}

NANSCOPE_LOOP I unusual(const F& m) { return as<I>(as<U>(m) & 0x7fffffffU) >= 0x7f800000; }
/// 0, Inf or NaN.
NANSCOPE_LOOP I no_factor(const F& factor) { return as<I>((as<U>(factor) & 0x7fffffffU) - 1U >= splat(0x7f7fffffU)); }

void power_scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, BlockScales to) {
  const BlockFormat& f = plan.format;
  const bool up = f.rule == ScaleRule::rceil;
  const std::int32_t top = up ? 0 : static_cast<std::int32_t>(bits_of(f.largest) >> 23) - 127;
  const std::uint32_t add = f.rule == ScaleRule::even    ? 1U << (22 - f.even_bits)
                            : f.rule == ScaleRule::floor ? 0U
                                                         : 0x7fffffU;
  // Beside powers of two a rounded logarithm is on the other side.
  const std::uint32_t slack = f.logarithm == Logarithm::exact ? 0 : 64;
  const float at_0 = f.divisor_at_code_0 > 0 ? 1.0F / f.divisor_at_code_0 : 0x1p127F;
  const bool wraps = f.reading == ScaleReading::ggml;
  for (std::int64_t block = 0; block < blocks; block += kChunk) {
    const F given = load<F>(extremes + block);
    const F m = pick(given < splat(f.smallest_amax), splat(f.smallest_amax), given);
    const U bits = as<U>(!up ? m : f.largest_reciprocal ? m * (1.0F / f.largest) : m / f.largest);
    const U fraction = bits & 0x7fffffU;
    const I code = as<I>((bits + add) >> 23) - top;
    const I above = pick(code > 0, code, I{});
    const U capped = as<U>(pick(above < 254, above, splat(254)));
    const U beside = up ? fraction - 1U : 0x7fffffU - fraction;
    I alone = unusual(m) | as<I>(beside < splat(slack)) | as<I>(bits - 1U < splat(0x7fffffU));
    if (wraps) alone |= (code < 0) & as<I>(bits != 0);
    const U inverse = pick(as<I>(capped == 254U), splat(0x00400000U), (254U - capped) << 23);
    store(to.codes + block, capped);
    store(to.factors + block, pick(as<I>(capped == 0U), splat(at_0), as<F>(inverse)));
    store(to.alone + block, alone);
  }
}

NANSCOPE_LOOP F unrounded(const BlockFormat& f, const F& m, float second, float expansion) {
  if (f.second == SecondScale::none) return m / f.largest;
  if (f.second == SecondScale::amax) return m / f.largest * (f.second_full / second) * expansion;
  if (f.second_use == SecondUse::divide_product) return m / (f.largest * second);
  return f.second_use == SecondUse::multiply ? m / f.largest * second : m / f.largest / second;
}

struct SmallScales {
  U codes;
  F values;
};

NANSCOPE_LOOP SmallScales round_e4m3(const F& value) {
  const F clipped = least(value, splat(448.0F));
  const I field = most(fields(clipped), splat(121));
  const U anchor = as<U>(field + 20) << 23;
  const F sum = clipped + as<F>(anchor);
  return {(as<U>(field - 121) << 3) + as<U>(sum) - anchor, sum - as<F>(anchor)};
}

NANSCOPE_LOOP SmallScales round_e4m3_ggml(const F& value) {
  const U bits = as<U>(value);
  const I units = __builtin_convertvector(least(value * 512.0F + 0.5F, splat(7.5F)), I);
  const U normal = ((bits + (1U << 19)) >> 20) - (120U << 3);
  const I beyond = (fields(value) >= 135) | as<I>(normal >= splat(120U));
  const U code = pick(fields(value) <= 120, as<U>(units), pick(beyond, splat(0x7eU), normal));
  const F small = __builtin_convertvector(as<I>(code), F) * 0x1p-9F;
  return {code, pick(as<I>(code < splat(8U)), small, as<F>((code + (120U << 3)) << 20))};
}

NANSCOPE_LOOP F factors_of(const BlockFormat& f, const F& scale, float second) {
  if (f.scaling == Scaling::reciprocal_second) return (1.0F / second) / scale;
  F whole = scale;
  if (f.second == SecondScale::multiplier) whole = scale * second;
  if (f.second == SecondScale::divisor) whole = scale / second;
  if (f.second == SecondScale::amax) whole = 1.0F / (f.second_full / second) * scale;
  return f.scaling == Scaling::reciprocal ? 1.0F / whole : whole;
}

template <bool kGgml>
void small_scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, float expansion, BlockScales to) {
  const BlockFormat& f = plan.format;
  const SmallScales instead = round_e4m3(splat(f.scale_of_code_0));
  for (std::int64_t block = 0; block < blocks; block += kChunk) {
    const F m = load<F>(extremes + block);
    F value = unrounded(f, m, plan.second, expansion);
    if (f.scale_of_zero > 0) value = pick(value == 0.0F, splat(f.scale_of_zero), value);
    if (f.smallest_scale > 0) value = pick(value < f.smallest_scale, splat(f.smallest_scale), value);
    SmallScales scale = kGgml ? round_e4m3_ggml(value) : round_e4m3(value);
    if (f.scale_of_code_0 > 0) {
      const I zero = as<I>(scale.codes == 0U);
      scale = {pick(zero, instead.codes, scale.codes), pick(zero, instead.values, scale.values)};
    }
    const F factor = factors_of(f, scale.values, plan.second);
    store(to.codes + block, scale.codes);
    store(to.factors + block, factor);
    store(to.alone + block, unusual(m) | no_factor(factor) | (scale.values == 0.0F));
  }
}

NANSCOPE_LOOP U to_f16(const F& value) {
  const U magnitude = as<U>(value) & 0x7fffffffU;
  const I field = most(as<I>(magnitude >> 23), splat(113));
  const U anchor = as<U>(field + 13) << 23;
  const F sum = as<F>(magnitude) + as<F>(anchor);
  const U code = (as<U>(field - 113) << 10) + as<U>(sum) - anchor;
  return pick(as<I>(code > splat(0x7bffU)), splat(0x7c00U), code) | as<U>(value) >> 31 << 15;
}

/// f32, and f16 with codes made by the f32.
void wide_scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, BlockScales to) {
  const BlockFormat& f = plan.format;
  const bool inverse_first = f.rule == ScaleRule::max_over_amax;
  for (std::int64_t block = 0; block < blocks; block += kChunk) {
    const F m = load<F>(extremes + block);
    const F inverse = 1.0F / m * f.largest;
    const F scale = inverse_first ? 1.0F / inverse : m / f.largest;
    const F reciprocal = inverse_first ? inverse : 1.0F / scale;
    const F factor = f.scaling == Scaling::divide ? scale : reciprocal;
    store(to.codes + block, f.scale == Format::f16 ? to_f16(scale) : as<U>(scale));
    store(to.factors + block, factor);
    store(to.alone + block, unusual(m) | no_factor(factor) | no_factor(scale));
  }
}

void scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, float expansion, BlockScales to) {
  if (plan.format.scale == Format::e8m0) return power_scales(plan, extremes, blocks, to);
  if (plan.format.scale != Format::e4m3) return wide_scales(plan, extremes, blocks, to);
  if (plan.format.scale_cast == ScaleCast::ggml) return small_scales<true>(plan, extremes, blocks, expansion, to);
  small_scales<false>(plan, extremes, blocks, expansion, to);
}

/// What the next piece will read for its scales, while this one makes codes.
NANSCOPE_LOOP void prefetch(const float* x) { __builtin_prefetch(x + kBlockPiece); }

NANSCOPE_LOOP void store_codes(std::uint8_t* to, const U& codes) { store(to, __builtin_convertvector(codes, Bytes)); }
/// The same in two steps, each of which is an instruction: where g++ 12 takes four to one apart.
NANSCOPE_LOOP void store_integers(std::uint8_t* to, const U& codes) {
  const Pairs halves = __builtin_convertvector(codes, Pairs);
  store(to, __builtin_convertvector(halves, Bytes));
}
NANSCOPE_LOOP U load_codes(const std::uint8_t* from) {
  const Pairs halves = __builtin_convertvector(load<Bytes>(from), Pairs);
  return __builtin_convertvector(halves, U);
}

/// The constants of a format, in registers.
struct Rounding {
  F largest;
  I lowest;
  int kept;
  int sign_shift;
  explicit Rounding(const BlockPlan& plan)
      : largest(splat(plan.largest)), lowest(splat(plan.lowest)), kept(plan.kept), sign_shift(plan.sign_shift) {}
};

/// Finite scaled elements, by an addition that leaves no room for what is below a code's unit.
template <Ties kTies, ZeroSign kZero>
NANSCOPE_LOOP U codes_of(const F& scaled, const Rounding& r) {
  const F magnitude = least(magnitudes_of(scaled), r.largest);
  const I field = most(fields(magnitude), r.lowest);
  const U anchor = as<U>(field + (23 - r.kept)) << 23;
  const F sum = magnitude + as<F>(anchor);  // rounded to even in units of the code
  U n = as<U>(sum) - anchor;
  if constexpr (kTies != Ties::even) {
    const F off = magnitude - (sum - as<F>(anchor));  // exact
    const U half = as<U>(field - (1 + r.kept)) << 23;
    if constexpr (kTies == Ties::away_sum) n -= as<U>(off >= as<F>(half - 1U));  // true is -1
    if constexpr (kTies == Ties::down) n += as<U>(off == -as<F>(half));
  }
  const U code = (as<U>(field - r.lowest) << r.kept) + n;
  U sign = as<U>(scaled) >> 31;
  if constexpr (kZero == ZeroSign::positive) sign = pick(as<I>(code == 0U), U{}, sign);
  if constexpr (kZero == ZeroSign::scaled_positive) sign = pick(scaled == 0.0F, U{}, sign);
  if constexpr (kZero == ZeroSign::scaled_negative) sign = pick(scaled == 0.0F, splat(1U), sign);
  return code | sign << r.sign_shift;
}

template <Ties kTies, ZeroSign kZero, bool kDivide>
void float_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                    std::uint8_t* codes) {
  const Rounding rounding(plan);
  const std::int64_t width = plan.format.block.columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const F factor = splat(factors[block]);
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      const F given = load<F>(x + chunk);
      prefetch(x + chunk);
      store_codes(codes + chunk, codes_of<kTies, kZero>(kDivide ? given / factor : given * factor, rounding));
    }
    x += width;
    codes += width;
  }
}

template <Ties kTies, ZeroSign kZero>
void float_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                    std::uint8_t* codes) {
  const bool divide = plan.format.scaling == Scaling::divide && plan.format.scale != Format::e8m0;
  if (divide) return float_elements<kTies, kZero, true>(plan, x, blocks, factors, codes);
  float_elements<kTies, kZero, false>(plan, x, blocks, factors, codes);
}

/// q4_0's codes -8..7.
NANSCOPE_LOOP U offset_codes(const F& scaled) {
  const I q = __builtin_convertvector(least(scaled + 8.5F, splat(15.5F)), I);
  return as<U>(pick(q > 0, q, I{}) - 8);
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
void integer_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                      std::uint8_t* codes) {
  const std::int64_t width = plan.format.block.columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const F factor = splat(factors[block]);
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      const F scaled = load<F>(x + chunk) * factor;
      prefetch(x + chunk);
      if constexpr (kOffset) store_integers(codes + chunk, offset_codes(scaled));
      if constexpr (!kOffset) store_integers(codes + chunk, integer_codes(scaled));
    }
    x += width;
    codes += width;
  }
}

/// Scaling::bounds, +0 for 0.
void bounded_elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                      std::uint8_t* codes) {
  constexpr float kMiddles[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const std::int64_t width = plan.format.block.columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const float factor = factors[block];
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      const F given = load<F>(x + chunk);
      prefetch(x + chunk);
      I code = {};
      for (const float middle : kMiddles) code -= magnitudes_of(given) > splat(middle * factor);
      const U sign = pick(code == 0, U{}, as<U>(given) >> 31);
      store_codes(codes + chunk, as<U>(code) | sign << 3);
    }
    x += width;
    codes += width;
  }
}

void elements(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors, std::uint8_t* codes) {
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

/// Values of codes of a format with exponent bits.
struct Reading {
  U magnitude_mask;
  U max_code;
  U inf_code;
  U normal;  ///< the smallest normal code
  U offset;
  F unit;
  int kept;
  int sign_shift;
  bool special;  ///< there are codes of NaN
  explicit Reading(const BlockPlan& plan)
      : magnitude_mask(splat((1U << plan.sign_shift) - 1U)),
        max_code(splat(plan.max_code)),
        inf_code(splat(plan.inf_code)),
        normal(splat(1U << plan.kept)),
        offset(splat(static_cast<std::uint32_t>(plan.lowest - 1) << 23)),
        unit(splat(float_of(static_cast<std::uint32_t>(plan.lowest - plan.kept) << 23))),
        kept(plan.kept),
        sign_shift(plan.sign_shift),
        special(plan.max_code != (1U << plan.sign_shift) - 1U) {}
};

NANSCOPE_LOOP F values_of(const std::uint8_t* codes, const Reading& r) {
  const U code = load_codes(codes);
  const U magnitude = code & r.magnitude_mask;
  const F small = __builtin_convertvector(as<I>(magnitude), F) * r.unit;
  U bits = pick(as<I>(magnitude < r.normal), as<U>(small), (magnitude << (23 - r.kept)) + r.offset);
  if (r.special) {
    const U special = pick(as<I>(magnitude == r.inf_code), splat(0x7f800000U), splat(kCanonicalNan));
    bits = pick(as<I>(magnitude > r.max_code), special, bits);
  }
  return as<F>(bits | code >> r.sign_shift << 31);
}

/// In quarters: memory is aligned to 16 bytes at least, and a store that crosses a line takes many times as long.
NANSCOPE_LOOP void store_quarters(float* to, const F& v) {
  typedef float Quarter __attribute__((vector_size(16)));  // NOLINT
  store(to, Quarter(__builtin_shufflevector(v, v, 0, 1, 2, 3)));
  store(to + 4, Quarter(__builtin_shufflevector(v, v, 4, 5, 6, 7)));
  store(to + 8, Quarter(__builtin_shufflevector(v, v, 8, 9, 10, 11)));
  store(to + 12, Quarter(__builtin_shufflevector(v, v, 12, 13, 14, 15)));
}

NANSCOPE_LOOP F integers_of(const std::uint8_t* codes) {
  return __builtin_convertvector(as<I>(load_codes(codes) << 24) >> 24, F);
}

template <bool kInteger>
void read_values(const BlockPlan& plan, const std::uint8_t* codes, std::int64_t blocks, const float* wholes,
                 float* out) {
  const Reading reading(plan);
  const std::int64_t width = plan.format.block.columns;
  const bool twice = plan.format.second == SecondScale::amax;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const F whole = splat(wholes[block]);
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      F value = (kInteger ? integers_of(codes + chunk) : values_of(codes + chunk, reading)) * whole;
      if (twice) value = value * plan.second / plan.format.second_full;
      store_quarters(out + chunk, pick(value == value, value, as<F>(splat(kCanonicalNan))));
    }
    codes += width;
    out += width;
  }
}

void values(const BlockPlan& plan, const std::uint8_t* codes, std::int64_t blocks, const float* wholes, float* out) {
  if (plan.integer) return read_values<true>(plan, codes, blocks, wholes, out);
  read_values<false>(plan, codes, blocks, wholes, out);
}

void errors(const BlockPlan& plan, const float* x, std::int64_t blocks, const std::uint8_t* codes, const float* scales,
            double* sums) {
  typedef double D __attribute__((vector_size(128)));  // NOLINT
  typedef double D8 __attribute__((vector_size(64)));  // NOLINT
  typedef double D4 __attribute__((vector_size(32)));  // NOLINT
  const Reading reading(plan);
  const std::int64_t width = plan.format.block.columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    D lanes = {};
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      const F read = values_of(codes + chunk, reading) * scales[block] * plan.second / plan.format.second_full;
      const D off = __builtin_convertvector(read - load<F>(x + chunk), D);
      lanes += off * off;
    }
    const D8 a = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7) +
                 __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
    const D4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    sums[block] = (b[0] + b[2]) + (b[1] + b[3]);
    x += width;
    codes += width;
  }
}

void pack_low_first(const std::uint8_t* codes, std::int64_t bytes, std::uint8_t* to) {
  std::int64_t i = 0;
  for (; i + kChunk <= bytes; i += kChunk) {
    const Pairs pairs = load<Pairs>(codes + 2 * i);
    store(to + i, __builtin_convertvector((pairs & 0x0fU) | (pairs >> 4 & 0xf0U), Bytes));
  }
  for (; i < bytes; ++i)
    to[i] = static_cast<std::uint8_t>((codes[2 * i] & 15U) | static_cast<unsigned>(codes[2 * i + 1]) << 4);
}

void unpack_low_first(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* codes) {
  std::int64_t i = 0;
  for (; i + kChunk <= bytes; i += kChunk) {
    const Pairs pairs = __builtin_convertvector(load<Bytes>(from + i), Pairs);
    store(codes + 2 * i, (pairs & 0x0fU) | (pairs & 0xf0U) << 4);
  }
  for (; i < bytes; ++i) {
    codes[2 * i] = from[i] & 15U;
    codes[2 * i + 1] = static_cast<std::uint8_t>(from[i] >> 4);
  }
}

NANSCOPE_LOOP Bytes close_words(const std::uint8_t* codes) {
  const Words four = load<Words>(codes);
  const Bytes packed =
      as<Bytes>((four & 0x3fU) | (four >> 2 & 0xfc0U) | (four >> 4 & 0x3f000U) | (four >> 6 & 0xfc0000U));
  return __builtin_shufflevector(packed, packed, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3);
}

NANSCOPE_LOOP Words open_words(const Bytes& close) {
  const Words four =
      as<Words>(__builtin_shufflevector(close, close, 0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15));
  return (four & 0x3fU) | (four & 0xfc0U) << 2 | (four & 0x3f000U) << 4 | (four & 0xfc0000U) << 6;
}

/// Four words at a time. 16 bytes are moved for 12, but for the last.
void pack_six_bit(const std::uint8_t* codes, std::int64_t words, std::uint8_t* to) {
  std::int64_t word = 0;
  for (; word + 8 <= words; word += 4) store(to + 3 * word, close_words(codes + 4 * word));
  for (; word + 4 <= words; word += 4) {
    const Bytes close = close_words(codes + 4 * word);
    std::memcpy(to + 3 * word, &close, 12);
  }
}

void unpack_six_bit(const std::uint8_t* from, std::int64_t words, std::uint8_t* codes) {
  std::int64_t word = 0;
  for (; word + 8 <= words; word += 4) store(codes + 4 * word, open_words(load<Bytes>(from + 3 * word)));
  for (; word + 4 <= words; word += 4) {
    Bytes close = {};
    std::memcpy(&close, from + 3 * word, 12);
    store(codes + 4 * word, open_words(close));
  }
}

}  // namespace

extern const BlockLoops kLoops;
const BlockLoops kLoops = {magnitudes, signed_extremes, scales,           elements,     errors,
                           values,     pack_low_first,  unpack_low_first, pack_six_bit, unpack_six_bit};

}  // namespace nanscope::NANSCOPE_ISA
