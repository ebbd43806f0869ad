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
typedef float F4 __attribute__((vector_size(16)));   // NOLINT

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

/// Errors without codes: magnitudes that are not clipped, rounded by the addition of codes_of(), times what 1 is worth.
NANSCOPE_LOOP F quick_errors(const F& magnitude, float factor, float one, const Rounding& r) {
  const F scaled = magnitude * factor;
  const F anchor = as<F>(most(as<I>(as<U>(scaled) & 0x7f800000U), r.lowest) + r.finest);
  const F rounded = (scaled + anchor) - anchor;
  return fused(rounded, splat(one), -magnitude);
}

/// e4m3 scales that were rounded by 1/16 of themselves at most, so that no element is clipped by more.
NANSCOPE_LOOP I4 are_normal(const Words& scales) { return (as<I4>(scales) >= 8) & (as<I4>(scales) < 0x7e); }

/// Four blocks. In f32, where that is safe: with w what 1 is worth, an element is off by w or a little more, and read
/// as 6 w at most, by 1 / factor for w a few units in the last place apart from what reading the code gives. So 16
/// squares are off by 16 x 2 x 1.2 w x 6 w x 2^-21 at most, the sums by less: 2^-12 w^2 is more than all.
NANSCOPE_LOOP I4 nearer_of_four(const Rounding& rounding, const float* table, const float* x, std::int64_t block,
                                const ScaleChoice& first, const ScaleChoice& other) {
  const F4 worth = 1.0F / load<F4>(first.factors + block);
  const F4 other_worth = 1.0F / load<F4>(other.factors + block);
  float ones[4];
  float other_ones[4];
  store(ones, worth);
  store(other_ones, other_worth);
  F more[4];
  for (int i = 0; i < 4; ++i) {
    const F magnitude = magnitudes_of(load<F>(x + i * kChunk));
    const F off = quick_errors(magnitude, first.factors[block + i], ones[i], rounding);
    const F other_off = quick_errors(magnitude, other.factors[block + i], other_ones[i], rounding);
    more[i] = other_off * other_off - off * off;
  }
  const F4 differences = sums_of_four(more[0], more[1], more[2], more[3]);
  const F4 bounds = (worth * worth + other_worth * other_worth) * 0x1p-12F;
  const F4 sizes = as<F4>(as<Words>(differences) & 0x7fffffffU);
  const I4 safe = are_normal(load<Words>(first.scales + block)) & are_normal(load<Words>(other.scales + block)) &
                  (sizes > bounds) & (bounds > 0x1p-100F) & (bounds < 0x1p100F);
  I4 better = differences < 0.0F;
  if ((safe[0] & safe[1] & safe[2] & safe[3]) == 0) {
    for (int i = 0; i < 4; ++i) {
      better[i] = other_is_nearer(rounding, table, load<F>(x + i * kChunk), block + i, first, other) ? -1 : 0;
    }
  }
  return better;
}

static void nearer(const BlockPlan& plan, const float* table, const float* x, std::int64_t blocks, ScaleChoice first,
                   ScaleChoice other) {
  const Rounding rounding(plan);
  std::int64_t block = 0;
  for (; block + 4 <= blocks; block += 4, x += 4 * kChunk) {
    // Without a branch: either is as often the nearer one.
    const I4 better = nearer_of_four(rounding, table, x, block, first, other);
    const Words scales = better ? load<Words>(other.scales + block) : load<Words>(first.scales + block);
    const F4 factors = better ? load<F4>(other.factors + block) : load<F4>(first.factors + block);
    store(first.scales + block, scales);
    store(first.factors + block, factors);
  }
  for (; block < blocks; ++block, x += kChunk) {
    if (!other_is_nearer(rounding, table, load<F>(x), block, first, other)) continue;
    first.scales[block] = other.scales[block];
    first.factors[block] = other.factors[block];
  }
}

}  // namespace nanscope::NANSCOPE_ISA
