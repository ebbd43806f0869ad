#pragma once
/// Registers of 32 codes of a byte, for what counts and adds rows of codes in integers. With AVX-512 too they have 256
/// bits: one source for both. The baseline, which cannot look bytes up, has none of this.
#include <cstdint>

#include "kernels/warp/warp.h"

#if !defined(__CUDACC__) && NANSCOPE_VECTOR_BYTES >= 32
#define NANSCOPE_CODE_REGISTERS

namespace nanscope::kernels::NANSCOPE_ISA {

using Codes = std::uint8_t __attribute__((vector_size(32)));
using CodeWords = std::int16_t __attribute__((vector_size(32)));
using CodeDwords = std::int32_t __attribute__((vector_size(32)));
inline constexpr int kCodesAtOnce = 32;

/// 16 bytes that lookup() finds by their place, for both halves of a register.
struct ByteTable {
  alignas(kCodesAtOnce) std::uint8_t of[kCodesAtOnce];
};

NANSCOPE_FN Codes load_codes(const std::uint8_t* p) {
  return reinterpret_cast<Codes>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
NANSCOPE_FN Codes splat_code(std::uint8_t value) {
  return reinterpret_cast<Codes>(_mm256_set1_epi8(static_cast<char>(value)));
}
NANSCOPE_FN CodeWords splat_word(std::int16_t value) { return reinterpret_cast<CodeWords>(_mm256_set1_epi16(value)); }
NANSCOPE_FN Codes load_table(const ByteTable& table) {
  return reinterpret_cast<Codes>(_mm256_load_si256(reinterpret_cast<const __m256i*>(table.of)));
}

/// A border for below_code(). Of a comparison with a number that it knows g++ makes two instructions.
NANSCOPE_FN Codes border_code(int value) {
  __m256i border = _mm256_set1_epi8(static_cast<char>(value));
  asm("" : "+x"(border));
  return reinterpret_cast<Codes>(border);
}
/// All ones where a is below `border`, both below 128.
NANSCOPE_FN Codes below_code(Codes a, Codes border) {
  return reinterpret_cast<Codes>(_mm256_cmpgt_epi8(reinterpret_cast<__m256i>(border), reinterpret_cast<__m256i>(a)));
}
NANSCOPE_FN bool some_negative(Codes a) { return _mm256_movemask_epi8(reinterpret_cast<__m256i>(a)) != 0; }
/// Of each byte, an index below 16.
NANSCOPE_FN Codes lookup(Codes table, Codes index) {
  return reinterpret_cast<Codes>(
      _mm256_shuffle_epi8(reinterpret_cast<__m256i>(table), reinterpret_cast<__m256i>(index)));
}
/// Bits 3 to 6 of each byte.
NANSCOPE_FN Codes high_four(Codes code) {
  const __m256i shifted = _mm256_srli_epi16(reinterpret_cast<__m256i>(code), 3);
  return reinterpret_cast<Codes>(shifted) & splat_code(0x0f);
}
NANSCOPE_FN Codes lower_code(Codes a, Codes b) {
  return reinterpret_cast<Codes>(_mm256_min_epu8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
NANSCOPE_FN Codes higher_code(Codes a, Codes b) {
  return reinterpret_cast<Codes>(_mm256_max_epu8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
/// The same of bytes in two's complement.
NANSCOPE_FN Codes lower_signed(Codes a, Codes b) {
  return reinterpret_cast<Codes>(_mm256_min_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
NANSCOPE_FN Codes higher_signed(Codes a, Codes b) {
  return reinterpret_cast<Codes>(_mm256_max_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
/// -a where the sign bit of `code` is set, 0 where `code` is 0.
NANSCOPE_FN Codes signed_as(Codes a, Codes code) {
  return reinterpret_cast<Codes>(_mm256_sign_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(code)));
}
/// Every second one negated, in two's complement; none is -128.
NANSCOPE_FN Codes alternating(Codes a) {
  return reinterpret_cast<Codes>(_mm256_sign_epi8(reinterpret_cast<__m256i>(a), _mm256_set1_epi16(-0xff)));
}
/// Of bytes in two's complement; 128, without sign, of -128.
NANSCOPE_FN Codes magnitudes(Codes a) { return reinterpret_cast<Codes>(_mm256_abs_epi8(reinterpret_cast<__m256i>(a))); }
/// Of each pair of bytes a[0] * b[0] + a[1] * b[1], a unsigned and b signed; the sum must fit 16 bits.
NANSCOPE_FN CodeWords multiply_pairs(Codes a, Codes b) {
  return reinterpret_cast<CodeWords>(_mm256_maddubs_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
/// Of each pair of words, signed.
NANSCOPE_FN CodeDwords multiply_pairs(CodeWords a, CodeWords b) {
  return reinterpret_cast<CodeDwords>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
/// Sums of 8 bytes each, in every second dword.
NANSCOPE_FN CodeDwords sum_of_eights(Codes a) {
  return reinterpret_cast<CodeDwords>(_mm256_sad_epu8(reinterpret_cast<__m256i>(a), _mm256_setzero_si256()));
}

using FourDwords = std::int32_t __attribute__((vector_size(16)));
using FourDoubles = double __attribute__((vector_size(32)));
using FourFloats = float __attribute__((vector_size(16)));
using CodeLongs = std::int64_t __attribute__((vector_size(32)));
using TwoLongs = std::int64_t __attribute__((vector_size(16)));

/// The sums of four registers, which must fit.
NANSCOPE_FN FourDwords sums_across(CodeDwords a, CodeDwords b, CodeDwords c, CodeDwords d) {
  const __m256i ab = _mm256_hadd_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  const __m256i cd = _mm256_hadd_epi32(reinterpret_cast<__m256i>(c), reinterpret_cast<__m256i>(d));
  const __m256i all = _mm256_hadd_epi32(ab, cd);
  return reinterpret_cast<FourDwords>(_mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}
NANSCOPE_FN FourDoubles to_doubles(FourDwords a) { return _mm256_cvtepi32_pd(reinterpret_cast<__m128i>(a)); }
NANSCOPE_FN CodeLongs to_longs(FourDwords a) {
  return reinterpret_cast<CodeLongs>(_mm256_cvtepi32_epi64(reinterpret_cast<__m128i>(a)));
}
/// Without sign, rounded once: both halves are exact where they are set into the places of 2^84 and 2^52.
NANSCOPE_FN FourDoubles to_doubles(CodeLongs a) {
  const __m256i high = _mm256_or_si256(_mm256_srli_epi64(reinterpret_cast<__m256i>(a), 32),
                                       reinterpret_cast<__m256i>(_mm256_set1_pd(0x1p84)));
  const __m256i low =
      _mm256_blend_epi32(reinterpret_cast<__m256i>(_mm256_set1_pd(0x1p52)), reinterpret_cast<__m256i>(a), 0x55);
  return (reinterpret_cast<FourDoubles>(high) - (0x1p84 + 0x1p52)) + reinterpret_cast<FourDoubles>(low);
}
/// With sign, of at most 50 bits, exact.
NANSCOPE_FN FourDoubles small_to_doubles(CodeLongs a) {
  const __m256d place = _mm256_set1_pd(0x1.8p52);
  return reinterpret_cast<FourDoubles>(_mm256_add_epi64(reinterpret_cast<__m256i>(a), _mm256_castpd_si256(place))) -
         place;
}
/// Row i: lane i of each.
template <class Four>
struct FourRows {
  Four of[4];
};
template <class Four>
NANSCOPE_FN FourRows<Four> rows_of(Four a, Four b, Four c, Four d) {
  const __m128i low_ab = _mm_unpacklo_epi32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b));
  const __m128i low_cd = _mm_unpacklo_epi32(reinterpret_cast<__m128i>(c), reinterpret_cast<__m128i>(d));
  const __m128i high_ab = _mm_unpackhi_epi32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b));
  const __m128i high_cd = _mm_unpackhi_epi32(reinterpret_cast<__m128i>(c), reinterpret_cast<__m128i>(d));
  return {{reinterpret_cast<Four>(_mm_unpacklo_epi64(low_ab, low_cd)),
           reinterpret_cast<Four>(_mm_unpackhi_epi64(low_ab, low_cd)),
           reinterpret_cast<Four>(_mm_unpacklo_epi64(high_ab, high_cd)),
           reinterpret_cast<Four>(_mm_unpackhi_epi64(high_ab, high_cd))}};
}
/// Without sign.
NANSCOPE_FN CodeDwords halves(CodeDwords a) {
  return reinterpret_cast<CodeDwords>(_mm256_srli_epi32(reinterpret_cast<__m256i>(a), 1));
}
/// Of each two dwords, without sign.
NANSCOPE_FN CodeLongs sums_of_two(CodeDwords a) {
  const __m256i whole = reinterpret_cast<__m256i>(a);
  const __m256i low = _mm256_blend_epi32(whole, _mm256_setzero_si256(), 0xaa);
  return reinterpret_cast<CodeLongs>(_mm256_add_epi64(low, _mm256_srli_epi64(whole, 32)));
}
NANSCOPE_FN TwoLongs sums_across(CodeLongs a, CodeLongs b) {
  const __m256i low = _mm256_unpacklo_epi64(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  const __m256i high = _mm256_unpackhi_epi64(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  const __m256i both = _mm256_add_epi64(low, high);
  return reinterpret_cast<TwoLongs>(_mm_add_epi64(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}
/// The sums of four registers.
NANSCOPE_FN CodeLongs sums_across(CodeLongs a, CodeLongs b, CodeLongs c, CodeLongs d) {
  const auto ab =
      reinterpret_cast<CodeLongs>(_mm256_unpacklo_epi64(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b))) +
      reinterpret_cast<CodeLongs>(_mm256_unpackhi_epi64(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  const auto cd =
      reinterpret_cast<CodeLongs>(_mm256_unpacklo_epi64(reinterpret_cast<__m256i>(c), reinterpret_cast<__m256i>(d))) +
      reinterpret_cast<CodeLongs>(_mm256_unpackhi_epi64(reinterpret_cast<__m256i>(c), reinterpret_cast<__m256i>(d)));
  const __m256i low = _mm256_permute2x128_si256(reinterpret_cast<__m256i>(ab), reinterpret_cast<__m256i>(cd), 0x20);
  const __m256i high = _mm256_permute2x128_si256(reinterpret_cast<__m256i>(ab), reinterpret_cast<__m256i>(cd), 0x31);
  return reinterpret_cast<CodeLongs>(low) + reinterpret_cast<CodeLongs>(high);
}
namespace detail {
/// Of each two, the highest of 4 bytes, without sign, next to each other.
NANSCOPE_FN __m256i highest_of_two(Codes a, Codes b) {
  return _mm256_max_epu8(_mm256_unpacklo_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)),
                         _mm256_unpackhi_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
}  // namespace detail
/// The highest byte, without sign, of each of four registers.
NANSCOPE_FN FourDwords highest_codes(Codes a, Codes b, Codes c, Codes d) {
  const __m256i ab = detail::highest_of_two(a, b);
  const __m256i cd = detail::highest_of_two(c, d);
  const __m256i all = _mm256_max_epu8(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  __m128i of = _mm_max_epu8(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  of = _mm_max_epu8(of, _mm_srli_epi32(of, 16));
  of = _mm_max_epu8(of, _mm_srli_epi32(of, 8));
  return reinterpret_cast<FourDwords>(of) & 0xff;
}
NANSCOPE_FN bool some_negative(FourDwords a) { return _mm_movemask_ps(reinterpret_cast<__m128>(a)) != 0; }
NANSCOPE_FN int lowest_code(Codes a) {
  const __m256i whole = reinterpret_cast<__m256i>(a);
  const __m128i half = _mm_min_epu8(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_min_epu8(half, _mm_srli_epi16(half, 8)))) & 0xff;
}
NANSCOPE_FN int highest_code(Codes a) { return 255 - lowest_code(~a); }

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
