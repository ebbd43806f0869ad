#pragma once
/// Registers of AVX2 for what goes through rows of f32, bf16 or f16 as fast as memory gives them: 16 columns at a time,
/// as f32 in two registers and as f64 in four.
#include <cstdint>

#include "kernels/warp/warp.h"

#if !defined(__CUDACC__) && NANSCOPE_VECTOR_BYTES == 32
#define NANSCOPE_WIDE_REGISTERS

namespace nanscope::kernels::NANSCOPE_ISA {

using Quad = double __attribute__((vector_size(32)));

/// 16 columns, four to a Quad.
struct SixteenColumns {
  Quad of[4];
};

NANSCOPE_FN Quad fma(Quad a, Quad b, Quad c) { return _mm256_fmadd_pd(a, b, c); }

/// Ascending.
NANSCOPE_FN SixteenColumns widen(const float* p) {
  return {{_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4)), _mm256_cvtps_pd(_mm_loadu_ps(p + 8)),
           _mm256_cvtps_pd(_mm_loadu_ps(p + 12))}};
}
/// 16 codes of f16 as f32, ascending.
NANSCOPE_FN void store_f16(const void* p, float* to) {
  const auto* half = static_cast<const __m128i*>(p);
  _mm256_store_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(half)));
  _mm256_store_ps(to + 8, _mm256_cvtph_ps(_mm_loadu_si128(half + 1)));
}
/// 16 codes of bf16 as f32: the even columns, then the odd ones, which is how they lie in a register.
NANSCOPE_FN void store_bf16(const void* p, float* to) {
  const __m256i codes = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  const __m256i odd = _mm256_blend_epi16(codes, _mm256_setzero_si256(), 0x55);
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_slli_epi32(codes, 16));
  _mm256_store_si256(reinterpret_cast<__m256i*>(to + 8), odd);
}

/// Lanes 0 to 3 added as the butterfly does: 0 + 2 and 1 + 3, then both.
NANSCOPE_FN double sum_of_quad(Quad a) {
  const __m128d half = _mm256_castpd256_pd128(a) + _mm256_extractf128_pd(a, 1);
  return half[0] + half[1];
}

/// Extremes of codes with a sign bit, by which the least and the largest value and magnitude are known without
/// decoding: the largest and the smallest as integers in two's complement, and without sign.
template <class Signed, class Unsigned>
struct CodeExtremes {
  using SignedRegister = Register<Signed>;
  using UnsignedRegister = Register<Unsigned>;
  static constexpr auto kSignBit = static_cast<Unsigned>(Unsigned{1} << (8 * sizeof(Unsigned) - 1));

  SignedRegister top = SignedRegister{} + static_cast<Signed>(kSignBit);
  SignedRegister bottom = SignedRegister{} + static_cast<Signed>(kSignBit - 1);
  UnsignedRegister most = UnsignedRegister{};
  UnsignedRegister least = ~UnsignedRegister{};

  NANSCOPE_LANE void add(CodeExtremes& extremes, const void* p) {
    const auto codes = reinterpret_cast<SignedRegister>(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    const auto plain = reinterpret_cast<UnsignedRegister>(codes);
    extremes.top = codes > extremes.top ? codes : extremes.top;
    extremes.bottom = codes < extremes.bottom ? codes : extremes.bottom;
    extremes.most = plain > extremes.most ? plain : extremes.most;
    extremes.least = plain < extremes.least ? plain : extremes.least;
  }
};

/// Of a tile, as codes.
struct CodeRange {
  std::uint32_t min;
  std::uint32_t max;
  std::uint32_t smallest;  ///< magnitude
  std::uint32_t largest;
};

namespace detail {
/// The smallest of each, in two's complement.
NANSCOPE_FN void lowest_of_four(const __m256i (&of)[4], std::int32_t (&lowest)[4]) {
  const __m256i ab = _mm256_min_epi32(_mm256_unpacklo_epi32(of[0], of[1]), _mm256_unpackhi_epi32(of[0], of[1]));
  const __m256i cd = _mm256_min_epi32(_mm256_unpacklo_epi32(of[2], of[3]), _mm256_unpackhi_epi32(of[2], of[3]));
  const __m256i all = _mm256_min_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  const __m128i half = _mm_min_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lowest), half);
}
/// Of 16 words without sign.
NANSCOPE_FN std::uint32_t lowest_word(__m256i a) {
  const __m128i half = _mm_min_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(half))) & 0xffffU;
}
}  // namespace detail

/// `top`, `bottom`, `most` and `least` of all lanes. Where nothing is negative or nothing positive, the other two say
/// all.
NANSCOPE_FN CodeRange range_of_codes(std::uint32_t top, std::uint32_t bottom, std::uint32_t most, std::uint32_t least,
                                     std::uint32_t sign_bit) {
  const bool negative = (bottom & sign_bit) != 0;
  const bool positive = (top & sign_bit) == 0;
  const std::uint32_t lowest = bottom & ~sign_bit;
  const std::uint32_t furthest = most & ~sign_bit;
  CodeRange range{negative ? most : least, positive ? top : bottom, lowest, furthest};
  if (positive) {
    range.smallest = !negative || least < lowest ? least : lowest;
    range.largest = !negative || top > furthest ? top : furthest;
  }
  return range;
}
NANSCOPE_FN CodeRange range_across(const CodeExtremes<std::int32_t, std::uint32_t>& extremes) {
  const __m256i sign = _mm256_set1_epi32(INT32_MIN);
  const auto inverted = ~reinterpret_cast<__m256i>(extremes.most);
  const __m256i of[4] = {~reinterpret_cast<__m256i>(extremes.top), reinterpret_cast<__m256i>(extremes.bottom),
                         _mm256_xor_si256(inverted, sign),
                         _mm256_xor_si256(reinterpret_cast<__m256i>(extremes.least), sign)};
  std::int32_t lowest[4];
  detail::lowest_of_four(of, lowest);
  constexpr std::uint32_t kSign = 0x80000000U;
  return range_of_codes(~static_cast<std::uint32_t>(lowest[0]), static_cast<std::uint32_t>(lowest[1]),
                        ~(static_cast<std::uint32_t>(lowest[2]) ^ kSign), static_cast<std::uint32_t>(lowest[3]) ^ kSign,
                        kSign);
}
NANSCOPE_FN CodeRange range_across(const CodeExtremes<std::int16_t, std::uint16_t>& extremes) {
  const __m256i sign = _mm256_set1_epi16(INT16_MIN);
  const __m256i ones = _mm256_set1_epi16(-1);
  constexpr std::uint32_t kSign = 0x8000U;
  // ~(x ^ sign) without sign is in the opposite order of x in two's complement.
  const std::uint32_t top =
      detail::lowest_word(_mm256_xor_si256(reinterpret_cast<__m256i>(extremes.top), _mm256_xor_si256(sign, ones)));
  const std::uint32_t bottom = detail::lowest_word(_mm256_xor_si256(reinterpret_cast<__m256i>(extremes.bottom), sign));
  const std::uint32_t most = detail::lowest_word(_mm256_xor_si256(reinterpret_cast<__m256i>(extremes.most), ones));
  const std::uint32_t least = detail::lowest_word(reinterpret_cast<__m256i>(extremes.least));
  return range_of_codes(top ^ 0x7fffU, bottom ^ kSign, most ^ 0xffffU, least, kSign);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
