#pragma once
#include "core/blocks/block_loops.h"
#include "core/blocks/loops/elements.h"
#include "core/blocks/loops/lanes.h"
#include "core/blocks/loops/values.h"

/// Which of two scales loses less of a block of 16 elements of e2m1.
namespace nanscope::NANSCOPE_ISA {

typedef double D __attribute__((vector_size(128)));  // NOLINT
typedef double D8 __attribute__((vector_size(64)));  // NOLINT
typedef double D4 __attribute__((vector_size(32)));  // NOLINT

/// The sum of squared errors in f64, of what reading the codes gives.
NANSCOPE_LOOP double exact_error(const Rounding& rounding, const float* table, const F& given, std::uint32_t scale,
                                 float factor) {
  const F scaled = given * factor;
  const U codes = codes_of<Ties::even, ZeroSign::scaled_positive>(scaled, scaled, rounding);
  const D off = __builtin_convertvector(looked_up(table + std::size_t{16} * scale, codes) - given, D);
  const D lanes = off * off;
  const D8 a = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
  const D4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[2]) + (b[1] + b[3]);
}

NANSCOPE_LOOP bool other_is_nearer(const Rounding& rounding, const float* table, const F& given, std::int64_t block,
                                   const ScaleChoice& first, const ScaleChoice& other) {
  return exact_error(rounding, table, given, other.scales[block], other.factors[block]) <
         exact_error(rounding, table, given, first.scales[block], first.factors[block]);
}

NANSCOPE_LOOP F add(const F& a, const F& b) { return a + b; }

/// Magnitudes of at most 7 rounded to values of e2m1; of two that are as near, either.
NANSCOPE_LOOP F to_e2m1(const F& magnitude, [[maybe_unused]] const Rounding& r) {
#if defined(__AVX512F__)
  // Middles between values are 1, 1.25, 1.5 or 1.75 times a power of two from 1/4 to 4: two bits of mantissa and three
  // of the exponent say which ones are below.
  constexpr F kFrom2 = {2, 3, 3, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6};
  constexpr F kFromEighth = {0, 0, 0, 0, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 1, 1, 1, 1.5F, 1.5F, 2};
  const U at = most(as<U>(magnitude), splat(bits_of(0.125F))) >> 21;
  return as<F>(_mm512_permutex2var_ps(as<__m512>(kFrom2), as<__m512i>(at), as<__m512>(kFromEighth)));
#else
  const F anchor = as<F>(most(as<I>(as<U>(magnitude) & 0x7f800000U), r.lowest) + r.finest);
  return (magnitude + anchor) - anchor;
#endif
}

/// Errors without codes: of magnitudes under a scale, which are multiplied by `factor` for it, and times what 1 is
/// worth.
NANSCOPE_LOOP F quick_errors(const F& magnitude, float factor, float one, const Rounding& r) {
  return fused(to_e2m1(magnitude * factor, r), splat(one), -magnitude);
}

/// e4m3 scales that were rounded by 1/16 of themselves at most, so that no element is clipped by more.
NANSCOPE_LOOP I are_normal(const U& scales) { return (as<I>(scales) >= 8) & (as<I>(scales) < 0x7e); }

/// How much more the sum of squared errors is under the other scale: of four blocks four shares each, in order.
NANSCOPE_LOOP F shares_of_four(const Rounding& rounding, const float* x, const float* factors, const float* ones,
                               const float* other_factors, const float* other_ones) {
  F more[4];
  for (int i = 0; i < 4; ++i) {
    const F magnitude = magnitudes_of(load<F>(x + i * kChunk));
    const F off = quick_errors(magnitude, factors[i], ones[i], rounding);
    const F other_off = quick_errors(magnitude, other_factors[i], other_ones[i], rounding);
    more[i] = fused(other_off, other_off, -(off * off));
  }
  return joined_quarters(more[0], more[1], more[2], more[3], add);
}

/// 16 blocks: whether the other scale is the nearer one. In f32, where that is safe: with w what 1 is worth, an element
/// is off by w or a little more, and read as 6 w at most, by 1 / factor for w a few units in the last place apart from
/// what reading the code gives. So 16 squares are off by 16 x 2 x 1.2 w x 6 w x 2^-21 at most, the sums by less: 2^-12
/// w^2 is more than all.
NANSCOPE_LOOP I nearer_of_sixteen(const Rounding& rounding, const float* table, const float* x, std::int64_t block,
                                  const ScaleChoice& first, const ScaleChoice& other) {
  const float* factors = first.factors + block;
  const float* other_factors = other.factors + block;
  const F worth = 1.0F / load<F>(factors);
  const F other_worth = 1.0F / load<F>(other_factors);
  float ones[kChunk];
  float other_ones[kChunk];
  store(ones, worth);
  store(other_ones, other_worth);
  F shares[4];
  for (int i = 0; i < 4; ++i) {
    shares[i] = shares_of_four(rounding, x + std::int64_t{4} * i * kChunk, factors + 4 * i, ones + 4 * i,
                               other_factors + 4 * i, other_ones + 4 * i);
  }
  const F differences = joined_shares(shares[0], shares[1], shares[2], shares[3], add);
  const F bounds = (worth * worth + other_worth * other_worth) * 0x1p-12F;
  const I safe = are_normal(load<U>(first.scales + block)) & are_normal(load<U>(other.scales + block)) &
                 (magnitudes_of(differences) > bounds) & (bounds > 0x1p-100F) & (bounds < 0x1p100F);
  I better = differences < 0.0F;
  if (any(~safe)) {
    for (int i = 0; i < kChunk; ++i) {
      if (safe[i] != 0) continue;
      better[i] = other_is_nearer(rounding, table, load<F>(x + i * kChunk), block + i, first, other) ? -1 : 0;
    }
  }
  return better;
}

static void nearer(const BlockPlan& plan, const float* table, const float* x, std::int64_t blocks, ScaleChoice first,
                   ScaleChoice other) {
  const Rounding rounding(plan);
  std::int64_t block = 0;
  for (; block + kChunk <= blocks; block += kChunk, x += kChunk * kChunk) {
    // Without a branch: either is as often the nearer one.
    const I better = nearer_of_sixteen(rounding, table, x, block, first, other);
    store(first.scales + block, pick(better, load<U>(other.scales + block), load<U>(first.scales + block)));
    store(first.factors + block, pick(better, load<F>(other.factors + block), load<F>(first.factors + block)));
  }
  for (; block < blocks; ++block, x += kChunk) {
    if (!other_is_nearer(rounding, table, load<F>(x), block, first, other)) continue;
    first.scales[block] = other.scales[block];
    first.factors[block] = other.factors[block];
  }
}

}  // namespace nanscope::NANSCOPE_ISA
