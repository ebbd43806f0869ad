#pragma once
/// Third part of warp_cpu.h: 32 lanes to and from 8 and 16 bit elements of memory. By intrinsics:
/// GCC 12 takes the generic vector conversions between these widths apart into scalars.
#include <cstdint>
#include <cstring>

#include "kernels/warp/warp.h"

namespace nanscope::kernels::NANSCOPE_ISA::detail {

#if NANSCOPE_VECTOR_BYTES == 64

NANSCOPE_FN U32 load_narrow(const std::uint8_t* p) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
    r.v[i] = reinterpret_cast<Register<std::uint32_t>>(_mm512_cvtepu8_epi32(part));
  }
  return r;
}
NANSCOPE_FN U32 load_narrow(const std::uint16_t* p) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16 * i));
    r.v[i] = reinterpret_cast<Register<std::uint32_t>>(_mm512_cvtepu16_epi32(part));
  }
  return r;
}
NANSCOPE_FN void store_narrow(std::uint8_t* p, const U32& a) {
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16 * i), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(a.v[i])));
  }
}
NANSCOPE_FN void store_narrow(std::uint16_t* p, const U32& a) {
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16 * i),
                        _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(a.v[i])));
  }
}

#elif NANSCOPE_VECTOR_BYTES == 32

NANSCOPE_FN U32 load_narrow(const std::uint8_t* p) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    const __m128i part = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i));
    r.v[i] = reinterpret_cast<Register<std::uint32_t>>(_mm256_cvtepu8_epi32(part));
  }
  return r;
}
NANSCOPE_FN U32 load_narrow(const std::uint16_t* p) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i));
    r.v[i] = reinterpret_cast<Register<std::uint32_t>>(_mm256_cvtepu16_epi32(part));
  }
  return r;
}
/// Lanes of registers 2i and 2i+1 to 16 bits. The pack works in 128 bit halves: blocks 0 2 1 3.
NANSCOPE_FN __m256i pack_pair(const U32& a, int i, std::uint32_t low_bits) {
  const __m256i keep = _mm256_set1_epi32(static_cast<int>(low_bits));
  return _mm256_packus_epi32(_mm256_and_si256(reinterpret_cast<__m256i>(a.v[2 * i]), keep),
                             _mm256_and_si256(reinterpret_cast<__m256i>(a.v[2 * i + 1]), keep));
}
NANSCOPE_FN void store_narrow(std::uint8_t* p, const U32& a) {
  const __m256i packed = _mm256_packus_epi16(pack_pair(a, 0, 0xffU), pack_pair(a, 1, 0xffU));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(packed, order));
}
NANSCOPE_FN void store_narrow(std::uint16_t* p, const U32& a) {
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16 * i),
                        _mm256_permute4x64_epi64(pack_pair(a, i, 0xffffU), 0xd8));
  }
}

#elif defined(__x86_64__)

NANSCOPE_FN U32 load_narrow(const std::uint16_t* p) {
  U32 r;
  const __m128i zero = _mm_setzero_si128();
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i));
    r.v[2 * i] = reinterpret_cast<Register<std::uint32_t>>(_mm_unpacklo_epi16(part, zero));
    r.v[2 * i + 1] = reinterpret_cast<Register<std::uint32_t>>(_mm_unpackhi_epi16(part, zero));
  }
  return r;
}
NANSCOPE_FN U32 load_narrow(const std::uint8_t* p) {
  U32 r;
  const __m128i zero = _mm_setzero_si128();
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
    const __m128i low = _mm_unpacklo_epi8(part, zero);
    const __m128i high = _mm_unpackhi_epi8(part, zero);
    r.v[4 * i] = reinterpret_cast<Register<std::uint32_t>>(_mm_unpacklo_epi16(low, zero));
    r.v[4 * i + 1] = reinterpret_cast<Register<std::uint32_t>>(_mm_unpackhi_epi16(low, zero));
    r.v[4 * i + 2] = reinterpret_cast<Register<std::uint32_t>>(_mm_unpacklo_epi16(high, zero));
    r.v[4 * i + 3] = reinterpret_cast<Register<std::uint32_t>>(_mm_unpackhi_epi16(high, zero));
  }
  return r;
}
/// Low 16 bits of registers 2i and 2i+1. The only 32 to 16 bit pack of SSE2 is signed: sign extend first.
NANSCOPE_FN __m128i pack_pair(const U32& a, int i) {
  const __m128i low = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(a.v[2 * i]), 16), 16);
  const __m128i high = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(a.v[2 * i + 1]), 16), 16);
  return _mm_packs_epi32(low, high);
}
NANSCOPE_FN void store_narrow(std::uint16_t* p, const U32& a) {
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8 * i), pack_pair(a, i));
  }
}
NANSCOPE_FN void store_narrow(std::uint8_t* p, const U32& a) {
  const __m128i keep = _mm_set1_epi16(0xff);
  NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m128i low = _mm_and_si128(pack_pair(a, 2 * i), keep);
    const __m128i high = _mm_and_si128(pack_pair(a, 2 * i + 1), keep);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16 * i), _mm_packus_epi16(low, high));
  }
}

#else

template <class Stored>
NANSCOPE_FN U32 load_narrow(const Stored* p) {
  U32 r;
  for (int i = 0; i < kLanes; ++i) r.v[i / U32::kWidth][i % U32::kWidth] = p[i];
  return r;
}
template <class Stored>
NANSCOPE_FN void store_narrow(Stored* p, const U32& a) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<Stored>(a.v[i / U32::kWidth][i % U32::kWidth]);
}

#endif

}  // namespace nanscope::kernels::NANSCOPE_ISA::detail
