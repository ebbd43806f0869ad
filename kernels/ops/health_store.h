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
  const FourFloats none = {};
  const FourFloats furthest = -min > max ? -min : max;
  alignas(32) TwoSums sums[4];
  alignas(16) FourDwords counts[4];
  alignas(16) FourFloats range[4];
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    sums[i] = TwoSums{sum[i], squares[i]};
    counts[i] = FourDwords{0, subnormal[i], zero[i], 0};
    range[i] = FourFloats{min[i], max[i], furthest[i], none[i]};
  }
  for (std::int64_t i = 0; i < tiles; ++i) {
    auto* bytes = reinterpret_cast<char*>(to + i);
    const __m256i rest = _mm256_inserti128_si256(none_bad, reinterpret_cast<__m128i>(sums[i]), 1);
    const __m256i longs = _mm256_cvtepi32_epi64(reinterpret_cast<__m128i>(counts[i]));
    __builtin_memcpy(bytes, &seen, sizeof seen);
    __builtin_memcpy(bytes + 32, &longs, sizeof longs);
    __builtin_memcpy(bytes + 64, &rest, sizeof rest);
    __builtin_memcpy(bytes + 96, &range[i], sizeof range[i]);
  }
}
#endif

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
