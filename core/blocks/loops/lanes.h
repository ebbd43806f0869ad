#pragma once
#include <cstdint>
#include <cstring>

#include "core/numbers/codec.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/// Vectors of 16 elements, of however many registers, and what the loops do with them. Compiled once an instruction
/// set, as namespace NANSCOPE_ISA: nothing in this folder may be shared with code that runs on every machine, so all is
/// forced inline or local. What compilers make several instructions of is named by its one, where it is there.
#define NANSCOPE_LOOP static inline __attribute__((always_inline))

namespace nanscope::NANSCOPE_ISA {

constexpr std::int64_t kChunk = 16;
typedef float F __attribute__((vector_size(64)));               // NOLINT: as the compilers' manuals write it
typedef std::uint32_t U __attribute__((vector_size(64)));       // NOLINT
typedef std::int32_t I __attribute__((vector_size(64)));        // NOLINT
typedef std::int32_t I8 __attribute__((vector_size(32)));       // NOLINT
typedef std::int32_t I4 __attribute__((vector_size(16)));       // NOLINT
typedef std::uint8_t Bytes __attribute__((vector_size(16)));    // NOLINT
typedef std::uint16_t Pairs __attribute__((vector_size(32)));   // NOLINT
typedef std::uint64_t Halves __attribute__((vector_size(16)));  // NOLINT
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
NANSCOPE_LOOP Pairs splat(std::uint16_t value) { return Pairs{} + value; }
NANSCOPE_LOOP I fields(const F& v) { return as<I>(as<U>(v) >> 23); }
NANSCOPE_LOOP F magnitudes_of(const F& v) { return as<F>(as<U>(v) & 0x7fffffffU); }
NANSCOPE_LOOP std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
NANSCOPE_LOOP float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

#if defined(__AVX512F__)
NANSCOPE_LOOP F least(const F& a, const F& b) { return as<F>(_mm512_min_ps(as<__m512>(a), as<__m512>(b))); }
NANSCOPE_LOOP I most(const I& a, const I& b) { return as<I>(_mm512_max_epi32(as<__m512i>(a), as<__m512i>(b))); }
NANSCOPE_LOOP U most(const U& a, const U& b) { return as<U>(_mm512_max_epu32(as<__m512i>(a), as<__m512i>(b))); }
#elif defined(__AVX2__)
/// By halves: g++ 12 takes comparisons of vectors that are wider than registers apart, element by element.
template <class Half, class T, class Join>
NANSCOPE_LOOP T by_halves(const T& a, const T& b, const Join& join) {
  Half x[2];
  Half y[2];
  std::memcpy(x, &a, sizeof(T));
  std::memcpy(y, &b, sizeof(T));
  const Half joined[2] = {join(x[0], y[0]), join(x[1], y[1])};
  return load<T>(joined);
}
NANSCOPE_LOOP F least(const F& a, const F& b) {
  return by_halves<__m256>(
      a, b, [](__m256 u, __m256 v) __attribute__((always_inline)) { return _mm256_min_ps(u, v); });
}
NANSCOPE_LOOP I most(const I& a, const I& b) {
  return by_halves<__m256i>(
      a, b, [](__m256i u, __m256i v) __attribute__((always_inline)) { return _mm256_max_epi32(u, v); });
}
NANSCOPE_LOOP U most(const U& a, const U& b) {
  return by_halves<__m256i>(
      a, b, [](__m256i u, __m256i v) __attribute__((always_inline)) { return _mm256_max_epu32(u, v); });
}
#else
NANSCOPE_LOOP F least(const F& a, const F& b) { return pick(a < b, a, b); }
NANSCOPE_LOOP I most(const I& a, const I& b) { return pick(a > b, a, b); }
NANSCOPE_LOOP U most(const U& a, const U& b) { return pick(as<I>(a > b), a, b); }
#endif

template <class T>
NANSCOPE_LOOP T most(const T& a, const T& b) {
  return a > b ? a : b;
}

/// Whether any of a comparison's lanes is true.
NANSCOPE_LOOP bool any(const I& mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(as<__m512i>(mask)) != 0;
#else
  std::uint64_t words[8];
  store(words, mask);
  std::uint64_t all = 0;
  for (const std::uint64_t word : words) all |= word;
  return all != 0;
#endif
}

/// a x b + c, rounded once: where the machine has it.
#if defined(__AVX512F__)
constexpr bool kFused = true;
NANSCOPE_LOOP F fused(const F& a, const F& b, const F& c) {
  return as<F>(_mm512_fmadd_ps(as<__m512>(a), as<__m512>(b), as<__m512>(c)));
}
#elif defined(__FMA__)
constexpr bool kFused = true;
NANSCOPE_LOOP F fused(const F& a, const F& b, const F& c) {
  __m256 x[2];
  __m256 y[2];
  __m256 z[2];
  std::memcpy(x, &a, sizeof(F));
  std::memcpy(y, &b, sizeof(F));
  std::memcpy(z, &c, sizeof(F));
  for (int half = 0; half < 2; ++half) x[half] = _mm256_fmadd_ps(x[half], y[half], z[half]);
  return load<F>(x);
}
#else
constexpr bool kFused = false;
NANSCOPE_LOOP F fused(const F& a, const F& b, const F& c) { return a * b + c; }
#endif

NANSCOPE_LOOP void store_codes(std::uint8_t* to, const U& codes) {
#if defined(__AVX512F__)
  __m128i bytes = _mm512_cvtepi32_epi8(as<__m512i>(codes));
  asm("" : "+v"(bytes));  // straight to memory it takes many times as long on some machines
  store(to, bytes);
#else
  // In two steps, each of which is an instruction: where g++ 12 takes four to one apart.
  const Pairs halves = __builtin_convertvector(codes, Pairs);
  store(to, __builtin_convertvector(halves, Bytes));
#endif
}

/// Codes of four vectors, below 256, which is where registers are wide enough to be worth it.
#if defined(__AVX512F__)
constexpr bool kFours = true;
#else
constexpr bool kFours = false;
#endif
NANSCOPE_LOOP void store_codes(std::uint8_t* to, const U& a, const U& b, const U& c, const U& d) {
#if defined(__AVX512F__)
  // Each quarter becomes four codes of every vector.
  const __m512i pairs = _mm512_packus_epi32(as<__m512i>(a), as<__m512i>(b));
  const __m512i others = _mm512_packus_epi32(as<__m512i>(c), as<__m512i>(d));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  store(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(pairs, others)));
#else
  store_codes(to, a);
  store_codes(to + kChunk, b);
  store_codes(to + 2 * kChunk, c);
  store_codes(to + 3 * kChunk, d);
#endif
}

NANSCOPE_LOOP U load_codes(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return as<U>(_mm512_cvtepu8_epi32(load<__m128i>(from)));
#else
  const Pairs halves = __builtin_convertvector(load<Bytes>(from), Pairs);
  return __builtin_convertvector(halves, U);
#endif
}

NANSCOPE_LOOP Pairs load_pairs(const std::uint8_t* from) {
#if defined(__AVX2__)
  return as<Pairs>(_mm256_cvtepu8_epi16(load<__m128i>(from)));
#else
  return __builtin_convertvector(load<Bytes>(from), Pairs);
#endif
}

/// int8.
NANSCOPE_LOOP F load_integers(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return as<F>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load<__m128i>(from))));
#else
  return __builtin_convertvector(as<I>(load_codes(from) << 24) >> 24, F);
#endif
}

/// In quarters: memory is aligned to 16 bytes at least, and a store that crosses a line takes many times as long.
NANSCOPE_LOOP void store_quarters(float* to, const F& v) {
  typedef float Quarter __attribute__((vector_size(16)));  // NOLINT
  store(to, Quarter(__builtin_shufflevector(v, v, 0, 1, 2, 3)));
  store(to + 4, Quarter(__builtin_shufflevector(v, v, 4, 5, 6, 7)));
  store(to + 8, Quarter(__builtin_shufflevector(v, v, 8, 9, 10, 11)));
  store(to + 12, Quarter(__builtin_shufflevector(v, v, 12, 13, 14, 15)));
}

/// Each quarter of four vectors joined to one element by `join`: four of each vector, in the order of the vectors, in
/// each quarter of the result.
template <class T, class Join>
NANSCOPE_LOOP T joined_quarters(const T& a, const T& b, const T& c, const T& d, const Join& join) {
  const auto pairs = [&](const T& u, const T& v) __attribute__((always_inline)) {
    return join(T(__builtin_shufflevector(u, v, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)),
                T(__builtin_shufflevector(u, v, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)));
  };
  const T ab = pairs(a, b);  // a b a b, in each quarter
  const T cd = pairs(c, d);
  return join(T(__builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)),
              T(__builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)));
}

/// Quarters of each of four vectors joined, in the order of the vectors.
template <class T, class Join>
NANSCOPE_LOOP T joined_shares(const T& a, const T& b, const T& c, const T& d, const Join& join) {
  const auto halves = [&](const T& u, const T& v) __attribute__((always_inline)) {
    return join(T(__builtin_shufflevector(u, v, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)),
                T(__builtin_shufflevector(u, v, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)));
  };
  const T ab = halves(a, b);
  const T cd = halves(c, d);
  return join(T(__builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)),
              T(__builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)));
}

}  // namespace nanscope::NANSCOPE_ISA
