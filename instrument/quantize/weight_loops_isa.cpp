/// Compiled once an instruction set, as namespace NANSCOPE_ISA: nothing here may be shared with code that runs on every
/// machine, so all is forced inline or local. A vector is of 16 elements everywhere, of however many registers.
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
#pragma GCC diagnostic push
#if !defined(__clang__)  // GCC 12's own header starts from an undefined register
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include "instrument/quantize/weight_loops.h"

#define NANSCOPE_LOOP static inline __attribute__((always_inline))

namespace nanscope::NANSCOPE_ISA {

extern const WeightLoops kWeightLoops;

namespace {

constexpr std::size_t kChunk = 16;
static_assert(kChunk == kLossLanes);
typedef float F __attribute__((vector_size(64)));          // NOLINT: as the compilers' manuals write it
typedef std::int32_t I __attribute__((vector_size(64)));   // NOLINT
typedef std::uint32_t U __attribute__((vector_size(64)));  // NOLINT
typedef double D __attribute__((vector_size(64)));         // NOLINT: half a vector's elements
typedef std::uint16_t S __attribute__((vector_size(32)));  // NOLINT

template <class T>
NANSCOPE_LOOP T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Eight elements.
NANSCOPE_LOOP D widen(const float* from) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm256_loadu_ps(from));
#else
  D wide;
  for (int i = 0; i < 8; ++i) wide[i] = double{from[i]};
  return wide;
#endif
}

NANSCOPE_LOOP U widen_codes(const std::byte* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<U>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(load<S>(from))));
#else
  return __builtin_convertvector(load<S>(from), U);
#endif
}

void widen_bf16(const std::byte* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const U bits = widen_codes(from + 2 * i) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
  for (; i < count; ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, from + 2 * i, sizeof code);
    const std::uint32_t bits = std::uint32_t{code} << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

NANSCOPE_LOOP std::int64_t total(const I& counts) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kChunk; ++i) sum += counts[i];
  return sum;
}

void loss(const float* values, const float* stored, std::size_t count, LossSums& sums) {
  D signal[2] = {load<D>(sums.signal), load<D>(sums.signal + 8)};
  D noise[2] = {load<D>(sums.noise), load<D>(sums.noise + 8)};
  I flushed{};
  for (std::size_t i = 0; i < count; i += kChunk) {
    for (std::size_t half = 0; half < 2; ++half) {
      const D value = widen(values + i + 8 * half);
      const D off = value - widen(stored + i + 8 * half);
      signal[half] += value * value;
      noise[half] += off * off;
    }
    flushed -= (load<F>(values + i) != 0.0F) & (load<F>(stored + i) == 0.0F);
  }
  std::memcpy(sums.signal, signal, sizeof signal);
  std::memcpy(sums.noise, noise, sizeof noise);
  sums.flushed += total(flushed);
}

/// The largest and the second largest magnitude of a block, by lane.
struct Largest {
  F first{};
  F second{};
};

NANSCOPE_LOOP F larger(const F& a, const F& b) {
#if defined(__AVX512F__)  // of a compare and a select, GCC 12 does not make the one instruction
  return _mm512_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
NANSCOPE_LOOP F smaller(const F& a, const F& b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

NANSCOPE_LOOP void add(Largest& two, const F& size) {
  two.second = larger(two.second, smaller(two.first, size));
  two.first = larger(two.first, size);
}

NANSCOPE_LOOP void add(Largest& two, const Largest& other) {
  two.second = larger(larger(two.second, other.second), smaller(two.first, other.first));
  two.first = larger(two.first, other.first);
}

/// Lane i takes in what lane i ^ Bit has.
template <int Bit, int... Index>
NANSCOPE_LOOP void fold(Largest& two, std::integer_sequence<int, Index...>) {
  add(two, Largest{__builtin_shufflevector(two.first, two.first, (Index ^ Bit)...),
                   __builtin_shufflevector(two.second, two.second, (Index ^ Bit)...)});
}

NANSCOPE_LOOP bool is_owned(Largest two, float owns) {
  constexpr std::make_integer_sequence<int, static_cast<int>(kChunk)> kAll{};
  fold<8>(two, kAll);
  fold<4>(two, kAll);
  fold<2>(two, kAll);
  fold<1>(two, kAll);
  return two.first[0] > 0 && two.first[0] >= owns * two.second[0];
}

void blocks(const float* values, std::int64_t rows, std::int64_t columns, std::int64_t width, const float* limits,
            float owns, BlockCounts& counts) {
  constexpr auto kStep = static_cast<std::int64_t>(kChunk);
  for (std::int64_t begin = 0, block = 0; begin < columns; begin += width, ++block) {
    const std::int64_t end = begin + width < columns ? begin + width : columns;
    const F limit = limits[block] - F{};
    Largest two[2];  // in turns, or each would wait for the one before
    I clipped{};
    const auto see = [&](const float* at, Largest& largest) __attribute__((always_inline)) {
      const U bits = load<U>(at) & 0x7fffffffU;
      const F size = reinterpret_cast<F>(bits);
      clipped -= size > limit;
      add(largest, size);
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* at = values + row * columns;
      std::int64_t i = begin;
      for (; i + 2 * kStep <= end; i += 2 * kStep) {
        see(at + i, two[0]);
        see(at + i + kStep, two[1]);
      }
      if (i < end) see(at + i, two[0]);
    }
    add(two[0], two[1]);
    counts.clipped += total(clipped);
    counts.owned += is_owned(two[0], owns) ? 1 : 0;
  }
}

}  // namespace

const WeightLoops kWeightLoops = {widen_bf16, loss, blocks};

}  // namespace nanscope::NANSCOPE_ISA
