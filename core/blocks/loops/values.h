#pragma once
#include "core/blocks/block_loops.h"
#include "core/blocks/loops/lanes.h"

/// Values of codes under their blocks' scales.
namespace nanscope::NANSCOPE_ISA {

#if defined(__AVX512F__) || defined(__F16C__)

/// Every element format is f16 with fewer bits of exponent: its code, where f16 has those bits, is read 2^(15 - bias)
/// times too small.
struct Reading {
  F unit;
  Pairs magnitude_mask;
  Pairs sign = splat(std::uint16_t{0x8000});
  Pairs nan_code;  ///< where Inf and NaN are not those of f16
  int up;
  int sign_up;
  explicit Reading(const BlockPlan& plan)
      : unit(splat(float_of(static_cast<std::uint32_t>(127 + 15 - (128 - plan.lowest)) << 23))),
        magnitude_mask(splat(static_cast<std::uint16_t>((1U << plan.sign_shift) - 1U))),
        nan_code(splat(static_cast<std::uint16_t>(plan.inf_code == 0 ? plan.max_code + 1 : 0xffffU))),
        up(10 - plan.kept),
        sign_up(15 - plan.sign_shift) {}
};

NANSCOPE_LOOP F from_f16(const Pairs& bits) {
#if defined(__AVX512F__)
  return as<F>(_mm512_cvtph_ps(as<__m256i>(bits)));
#else
  __m128i halves[2];
  std::memcpy(halves, &bits, sizeof(bits));
  const __m256 values[2] = {_mm256_cvtph_ps(halves[0]), _mm256_cvtph_ps(halves[1])};
  return load<F>(values);
#endif
}

template <bool kSpecial>
NANSCOPE_LOOP F values_of(const std::uint8_t* codes, const Reading& r) {
  const Pairs code = load_pairs(codes);
  const Pairs magnitude = code & r.magnitude_mask;
  Pairs bits = magnitude << r.up | (code << r.sign_up & r.sign);
  if (kSpecial) bits |= Pairs(magnitude == r.nan_code) & 0x7fffU;
  return from_f16(bits) * r.unit;
}

#else

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
  explicit Reading(const BlockPlan& plan)
      : magnitude_mask(splat((1U << plan.sign_shift) - 1U)),
        max_code(splat(plan.max_code)),
        inf_code(splat(plan.inf_code)),
        normal(splat(1U << plan.kept)),
        offset(splat(static_cast<std::uint32_t>(plan.lowest - 1) << 23)),
        unit(splat(float_of(static_cast<std::uint32_t>(plan.lowest - plan.kept) << 23))),
        kept(plan.kept),
        sign_shift(plan.sign_shift) {}
};

template <bool kSpecial>
NANSCOPE_LOOP F values_of(const std::uint8_t* codes, const Reading& r) {
  const U code = load_codes(codes);
  const U magnitude = code & r.magnitude_mask;
  const F small = __builtin_convertvector(as<I>(magnitude), F) * r.unit;
  U bits = pick(as<I>(magnitude < r.normal), as<U>(small), (magnitude << (23 - r.kept)) + r.offset);
  if (kSpecial) {
    const U special = pick(as<I>(magnitude == r.inf_code), splat(0x7f800000U), splat(kCanonicalNan));
    bits = pick(as<I>(magnitude > r.max_code), special, bits);
  }
  return as<F>(bits | code >> r.sign_shift << 31);
}

#endif

enum class Elements : std::uint8_t { integers, finite, special };

/// kNan: there may be one.
template <Elements kElements, bool kNan>
void read_values(const BlockPlan& plan, const std::uint8_t* codes, std::int64_t blocks, const float* wholes,
                 float* out) {
  const Reading reading(plan);
  const std::int64_t width = plan.format.block.columns;
  const bool twice = plan.format.second == SecondScale::amax;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const F whole = splat(wholes[block]);
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      F value;
      if constexpr (kElements == Elements::integers) value = load_integers(codes + chunk);
      if constexpr (kElements == Elements::finite) value = values_of<false>(codes + chunk, reading);
      if constexpr (kElements == Elements::special) value = values_of<true>(codes + chunk, reading);
      value *= whole;
      if (kNan && twice) value = value * plan.second / plan.format.second_full;
      if (kNan) value = pick(value == value, value, as<F>(splat(kCanonicalNan)));
      store_quarters(out + chunk, value);
    }
    codes += width;
    out += width;
  }
}

static void values(const BlockPlan& plan, const std::uint8_t* codes, std::int64_t blocks, const float* wholes,
                   float* out) {
  bool nan = plan.format.second == SecondScale::amax;
  for (std::int64_t i = 0; i < blocks; ++i) nan = nan || (bits_of(wholes[i]) & 0x7f800000U) == 0x7f800000U;
  const bool special = !plan.integer && plan.max_code != (1U << plan.sign_shift) - 1U;
  if (special) return read_values<Elements::special, true>(plan, codes, blocks, wholes, out);
  if (plan.integer && nan) return read_values<Elements::integers, true>(plan, codes, blocks, wholes, out);
  if (plan.integer) return read_values<Elements::integers, false>(plan, codes, blocks, wholes, out);
  if (nan) return read_values<Elements::finite, true>(plan, codes, blocks, wholes, out);
  read_values<Elements::finite, false>(plan, codes, blocks, wholes, out);
}

static void half_values(const std::uint32_t* codes, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; i += kChunk) {
    const U code = load<U>(codes + i);
    const U magnitude = (code & 0x7fffU) << 13;
    const F finite = as<F>(magnitude) * 0x1p112F;
    const U bits = pick(as<I>(magnitude >= (0x7c00U << 13)), magnitude | 0x7f800000U, as<U>(finite));
    store(values + i, bits | (code & 0x8000U) << 16);
  }
}

/// 16 values of a table by codes below 16.
NANSCOPE_LOOP F looked_up(const float* table, const U& codes) {
#if defined(__AVX512F__)
  return as<F>(_mm512_permutexvar_ps(as<__m512i>(codes), load<__m512>(table)));
#else
  F found;
  for (int i = 0; i < kChunk; ++i) found[i] = table[codes[i]];
  return found;
#endif
}

static void products(const float* table, std::int64_t width, const std::uint8_t* codes, std::int64_t blocks,
                     const std::uint32_t* scales, float* out) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    const float* row = table + std::size_t{16} * scales[block];
    for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
      store_quarters(out + chunk, looked_up(row, load_codes(codes + chunk)));
    }
    codes += width;
    out += width;
  }
}

}  // namespace nanscope::NANSCOPE_ISA
