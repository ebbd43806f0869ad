#pragma once
/// Writes the health of a tile without NaN and Inf in four stores. For the CPU's forms of health_scan.h.
///
/// Of a struct that is set to zeros first g++ makes a string instruction, which takes as long as half of a tile of 8
/// bit codes.
#include <cstddef>
#include <cstdint>

#include "core/tensor/health.h"
#include "kernels/warp/warp.h"
#include "kernels/warp/warp_cpu_bytes.h"

#if !defined(__CUDACC__)

namespace nanscope::kernels::NANSCOPE_ISA {

using TwoSums = double __attribute__((vector_size(16)));  ///< of the values and of their squares

/// What of a tile's health is not 0.
struct FiniteHealth {
  std::int64_t count;
  std::int64_t saturated = 0;
  std::int64_t subnormal = 0;
  std::int64_t zero = 0;
  TwoSums sums;
  float min;
  float max;
};

NANSCOPE_LANE void store_finite(Health* to, const FiniteHealth& health) {
  using Longs = std::int64_t __attribute__((vector_size(32)));
  using Floats = float __attribute__((vector_size(16)));
  using TwoLongs = std::int64_t __attribute__((vector_size(16)));
  static_assert(offsetof(Health, saturated) == 32 && offsetof(Health, clipped) == 64 && offsetof(Health, min) == 96);
  static_assert(offsetof(Health, first_bad) == 72 && offsetof(Health, sum) == 80 && sizeof(Health) == 112);
  const Longs seen = {health.count, 0, 0, 0};
  const Longs counts = {health.saturated, health.subnormal, health.zero, 0};
  const auto sums = reinterpret_cast<TwoLongs>(health.sums);
  const Longs rest = {0, -1, sums[0], sums[1]};
  const Floats range = {health.min, health.max, -health.min > health.max ? -health.min : health.max, 0};
  auto* bytes = reinterpret_cast<char*>(to);
  __builtin_memcpy(bytes, &seen, sizeof seen);
  __builtin_memcpy(bytes + 32, &counts, sizeof counts);
  __builtin_memcpy(bytes + 64, &rest, sizeof rest);
  __builtin_memcpy(bytes + 96, &range, sizeof range);
}

#if defined(NANSCOPE_CODE_REGISTERS)
/// Of four tiles of `count`, a lane each, the first `tiles`; neither of their sums is -0, and none is saturated.
NANSCOPE_LANE void store_four(Health* to, std::int64_t tiles, std::int64_t count, FourDwords zero, FourDwords subnormal,
                              FourDoubles sum, FourDoubles squares, FourFloats min, FourFloats max) {
  const __m256i seen = _mm256_setr_epi64x(count, 0, 0, 0);
  const __m256i none_bad = _mm256_setr_epi64x(0, -1, 0, 0);
  const auto even = reinterpret_cast<__m256i>(_mm256_unpacklo_pd(sum, squares));
  const auto odd = reinterpret_cast<__m256i>(_mm256_unpackhi_pd(sum, squares));
  const __m256i rest[4] = {
      _mm256_permute2x128_si256(none_bad, even, 0x20), _mm256_permute2x128_si256(none_bad, odd, 0x20),
      _mm256_permute2x128_si256(none_bad, even, 0x30), _mm256_permute2x128_si256(none_bad, odd, 0x30)};
  const FourDwords none = {};
  const FourRows<FourDwords> counts = rows_of(none, subnormal, zero, none);
  const FourRows<FourFloats> range = rows_of(min, max, -min > max ? -min : max, FourFloats{});
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    if (i >= tiles) break;
    auto* bytes = reinterpret_cast<char*>(to + i);
    const CodeLongs longs = to_longs(counts.of[i]);
    __builtin_memcpy(bytes, &seen, sizeof seen);
    __builtin_memcpy(bytes + 32, &longs, sizeof longs);
    __builtin_memcpy(bytes + 64, &rest[i], sizeof rest[i]);
    __builtin_memcpy(bytes + 96, &range.of[i], sizeof range.of[i]);
  }
}
#endif

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
