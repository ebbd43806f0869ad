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

/// Magnitudes x factor, at most 7, rounded to values of e2m1; of two that are as near, either.
NANSCOPE_LOOP F to_e2m1(const F& magnitude, float factor, [[maybe_unused]] const Rounding& r) {
#if defined(__AVX512F__)
  // All middles between values are quarters, and 2^21 leaves room for no less: how many whole ones there are says it.
  constexpr F kBelow4 = {0, 0.5F, 0.5F, 1, 1, 1.5F, 1.5F, 2, 2, 2, 3, 3, 3, 3, 4, 4};
  constexpr F kFrom4 = {4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6};
  const __m512 quarters = _mm512_fmadd_round_ps(as<__m512>(magnitude), _mm512_set1_ps(factor), _mm512_set1_ps(0x1p21F),
                                                _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  return as<F>(_mm512_permutex2var_ps(as<__m512>(kBelow4), as<__m512i>(quarters), as<__m512>(kFrom4)));
#else
  const F scaled = magnitude * factor;
  const F anchor = as<F>(most(as<I>(as<U>(scaled) & 0x7f800000U), r.lowest) + r.finest);
  return (scaled + anchor) - anchor;
#endif
}

/// Errors without codes: of magnitudes under a scale, which are multiplied by `factor` for it, where 1 is worth `one`.
NANSCOPE_LOOP F quick_errors(const F& magnitude, float factor, float one, const Rounding& r) {
  return fused(to_e2m1(magnitude, factor, r), splat(one), -magnitude);
}

/// e4m3 scales that were rounded by 1/16 of themselves at most, so that no element is clipped by more.
NANSCOPE_LOOP I are_normal(const U& scales) { return (as<I>(scales) >= 8) & (as<I>(scales) < 0x7e); }

/// How much more the sum of squared errors is under the other scale: of four blocks four shares each, in order.
NANSCOPE_LOOP F shares_of_four(const Rounding& rounding, const float* x, const float* factors, const float* ones,
                               const float* other_factors, const float* other_ones) {
  F more[4];
  for (int i = 0; i < 4; ++i) {
    const F magnitude = magnitudes_of(load<F>(x + i * kChunk));
    if (i % 2 == 0) __builtin_prefetch(x + i * kChunk + rounding.ahead);
    const F off = quick_errors(magnitude, factors[i], ones[i], rounding);
    const F other_off = quick_errors(magnitude, other_factors[i], other_ones[i], rounding);
    more[i] = fused(other_off, other_off, -(off * off));
  }
  return joined_quarters(more[0], more[1], more[2], more[3], add);
}

/// The same of 16 blocks.
NANSCOPE_LOOP F differences_of(const Rounding& rounding, const float* x, const float* factors, const float* ones,
                               const float* other_factors, const float* other_ones) {
  const auto four = [&](std::int64_t i) __attribute__((always_inline)) {
    return shares_of_four(rounding, x + i * kChunk, factors + i, ones + i, other_factors + i, other_ones + i);
  };
  const F a = four(0);
  const F b = four(4);
  const F c = four(8);
  const F d = four(12);
  return joined_shares(a, b, c, d, add);
}

/// Whether a difference in f32 tells which of 16 blocks' scales are the nearer ones. With w what 1 is worth, an element
/// is off by w or a little more, and read as 6 w at most, by 1 / factor for w a few units in the last place apart from
/// what reading the code gives. So 16 squares are off by 16 x 2 x 1.2 w x 6 w x 2^-21 at most, the sums by less: 2^-12
/// w^2 is more than all.
NANSCOPE_LOOP I are_safe(const F& differences, const F& worth, const F& other_worth, const U& scales,
                         const U& other_scales) {
  const F bounds = (worth * worth + other_worth * other_worth) * 0x1p-12F;
  return are_normal(scales) & are_normal(other_scales) & (magnitudes_of(differences) > bounds) & (bounds > 0x1p-100F) &
         (bounds < 0x1p100F);
}

/// At most kBlocks blocks, in two loops: what one choice waits for, the next one's sums would wait for.
constexpr std::int64_t kBlocks = kBlockPiece / kChunk;
static void choose_nearer(const Rounding& rounding, const float* table, const float* x, std::int64_t blocks,
                          ScaleChoice first, ScaleChoice other) {
  float ones[kBlocks];
  float other_ones[kBlocks];
  float differences[kBlocks];
  const std::int64_t whole = blocks / kChunk * kChunk;
  for (std::int64_t b = 0; b < whole; b += kChunk) {
    store(ones + b, 1.0F / load<F>(first.factors + b));
    store(other_ones + b, 1.0F / load<F>(other.factors + b));
  }
  for (std::int64_t b = 0; b < whole; b += kChunk) {
    store(differences + b,
          differences_of(rounding, x + b * kChunk, first.factors + b, ones + b, other.factors + b, other_ones + b));
  }
  for (std::int64_t b = 0; b < whole; b += kChunk) {
    // Without a branch: either is as often the nearer one.
    const F off = load<F>(differences + b);
    const U scales = load<U>(first.scales + b);
    const U other_scales = load<U>(other.scales + b);
    const I safe = are_safe(off, load<F>(ones + b), load<F>(other_ones + b), scales, other_scales);
    I better = off < 0.0F;
    if (any(~safe)) {
      for (int i = 0; i < kChunk; ++i) {
        if (safe[i] != 0) continue;
        better[i] = other_is_nearer(rounding, table, load<F>(x + (b + i) * kChunk), b + i, first, other) ? -1 : 0;
      }
    }
    store(first.scales + b, pick(better, other_scales, scales));
    store(first.factors + b, pick(better, load<F>(other.factors + b), load<F>(first.factors + b)));
  }
  for (std::int64_t b = whole; b < blocks; ++b) {
    if (!other_is_nearer(rounding, table, load<F>(x + b * kChunk), b, first, other)) continue;
    first.scales[b] = other.scales[b];
    first.factors[b] = other.factors[b];
  }
}

static void nearer(const BlockPlan& plan, const float* table, const float* x, std::int64_t blocks, ScaleChoice first,
                   ScaleChoice other) {
  const Rounding rounding(plan);
  for (std::int64_t b = 0; b < blocks; b += kBlocks) {
    choose_nearer(rounding, table, x + b * kChunk, blocks - b < kBlocks ? blocks - b : kBlocks,
                  {first.scales + b, first.factors + b}, {other.scales + b, other.factors + b});
  }
}

}  // namespace nanscope::NANSCOPE_ISA
