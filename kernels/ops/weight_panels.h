#pragma once
/// Weights as they are stored, (N, K), to the panels that a product reads: 32 columns of f32 side by side. For the
/// registers of a CPU.
#include <cstring>
#include <utility>

#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// 32 bit words of a register: the side of the square that is transposed in registers.
inline constexpr int kWords = U32::kWidth;
using Words = Register<std::uint32_t>;
using WordSequence = std::make_integer_sequence<int, kWords>;

namespace detail {
/// Within each 128 bits: words a0 b0 a1 b1 (High: a2 b2 a3 b3), or those of pairs.
template <bool High, int... I>
NANSCOPE_FN Words zip(Words a, Words b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (I % 2 * kWords + I / 4 * 4 + (High ? 2 : 0) + I % 4 / 2)...);
}
template <bool High, int... I>
NANSCOPE_FN Words zip_pairs(Words a, Words b, std::integer_sequence<int, I...>) {
  using Pairs = Register<std::uint64_t>;  // as words, g++ does not see that one instruction does it
  constexpr int kPairs = kWords / 2;
  return reinterpret_cast<Words>(__builtin_shufflevector(reinterpret_cast<Pairs>(a), reinterpret_cast<Pairs>(b),
                                                         (I % 2 * kPairs + I / 2 * 2 + (High ? 1 : 0))...));
}
/// Every second 128 bits of a and b.
template <int First, int... I>
NANSCOPE_FN Words every_second(Words a, Words b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, ((2 * (I / 4) + First) * 4 + I % 4)...);
}
}  // namespace detail

/// binary16 to f32, exactly, as decode_f16(), of codes in the high halves.
NANSCOPE_FN Words decode_high_f16(Words code) {
  const auto shifted = reinterpret_cast<Words>(reinterpret_cast<Register<std::int32_t>>(code) >> 3) & 0x8fffe000U;
  const auto finite = reinterpret_cast<Words>(reinterpret_cast<Register<float>>(shifted) * 0x1p112F);
  const auto special = reinterpret_cast<Words>((shifted & 0x0f800000U) == 0x0f800000U);
  return finite | (special & 0x7f800000U);
}

/// The smallest magnitude of a format of 8 bits that is no finite number; 0x80 where all are.
template <Format F>
inline constexpr std::uint32_t kFirstSpecial = F == Format::e4m3   ? 0x7f
                                               : F == Format::e5m2 ? 0x7c
                                                                   : 0x80;

/// Whether codes have to be told from others to be decoded: NaN and Inf, and in e8m0 what is no power of two that a
/// normal float can be.
template <Format F>
inline constexpr bool kHasSpecial = F == Format::e8m0 || kFirstSpecial<F> < 0x80;

/// Whether codes of words may be special, gathered in the top bits of their bytes.
template <Format F>
NANSCOPE_FN Words special_codes(Words words) {
  if constexpr (!kHasSpecial<F>) return Words{};
  const Words low = words & 0x7f7f7f7fU;
  if constexpr (F == Format::e8m0) return ((low + 0x01010101U) & words) | ~((low + 0x7f7f7f7fU) | words);
  return low + (0x80 - kFirstSpecial<F>)*0x01010101U;
}
template <Format F>
NANSCOPE_FN Words special_codes(const Words (&square)[kWords]) {
  Words gathered{};
  NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) gathered |= special_codes<F>(square[i]);
  return gathered;
}
NANSCOPE_FN bool any_special(Words gathered) {
  const auto pairs = reinterpret_cast<Register<std::uint64_t>>(gathered);
  std::uint64_t all = 0;
  for (int i = 0; i < kWords / 2; ++i) all |= pairs[i];
  return (all & 0x8080808080808080U) != 0;
}

/// A float of few bits to f32, exactly, of codes whose first bit is the highest: the exponent is moved by a
/// multiplication, which also normalises. What follows a code is passed over. A NaN is some NaN, or where it is known
/// that all are finite some number.
template <Format F, bool Finite>
NANSCOPE_FN Words decode_high_few_bits(Words code) {
  constexpr CodecParams p = kCodecParams<F>;
  constexpr std::uint32_t magnitude = ((1U << (p.exponent_bits + p.mantissa_bits)) - 1) << (23 - p.mantissa_bits);
  constexpr std::uint32_t highest = p.specials == Specials::fn ? magnitude : magnitude & 0x7f800000U;
  const auto shifted = reinterpret_cast<Words>(reinterpret_cast<Register<std::int32_t>>(code) >> (8 - p.exponent_bits));
  const Words kept = shifted & (0x80000000U | magnitude);
  const float exponent = std::bit_cast<float>(static_cast<std::uint32_t>(254 - p.bias) << 23);
  const auto finite = reinterpret_cast<Words>(reinterpret_cast<Register<float>>(kept) * exponent);
  if constexpr (Finite || p.specials == Specials::none) return finite;
  const auto special = reinterpret_cast<Words>((kept & highest) == highest);
  return finite | (special & 0x7f800000U);
}

#if NANSCOPE_VECTOR_BYTES == 64
/// Code `k` of eight in each word, from a table. What lies above an index does not count, so that codes of the upper
/// half, which are looked up as the upper halves of floats, need no shifts but those of the lower half's codes.
NANSCOPE_FN Words decode_e2m1(Words words, int k) {
  const __m512 values = _mm512_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6);
  constexpr auto kHalf = [](float value) { return static_cast<short>(std::bit_cast<std::uint32_t>(value) >> 16); };
  const __m512i halves = _mm512_broadcast_i64x4(_mm256_setr_epi16(
      kHalf(0), kHalf(0.5F), kHalf(1), kHalf(1.5F), kHalf(2), kHalf(3), kHalf(4), kHalf(6), kHalf(-0.0F), kHalf(-0.5F),
      kHalf(-1), kHalf(-1.5F), kHalf(-2), kHalf(-3), kHalf(-4), kHalf(-6)));
  const auto index = reinterpret_cast<__m512i>(words >> (4 * (k % 4)));
  if (k < 4) return reinterpret_cast<Words>(_mm512_permutexvar_ps(index, values));
  return reinterpret_cast<Words>(_mm512_maskz_permutexvar_epi16(0xaaaaaaaaU, index, halves));
}
#endif

/// Code `k` of each word: four of 8 bits, or eight of 4 bits.
template <Format F, bool Finite>
NANSCOPE_FN Words decode_few_bits(Words words, int k) {
  constexpr int kBits = kFormatTable[static_cast<std::size_t>(F)].bits;
  const Words high = words << (32 - kBits * (k + 1));
#if NANSCOPE_VECTOR_BYTES == 64
  if constexpr (F == Format::e2m1) return decode_e2m1(words, k);
#endif
  if constexpr (F == Format::int8) {
    const auto value = reinterpret_cast<Register<std::int32_t>>(high) >> 24;
    return reinterpret_cast<Words>(__builtin_convertvector(value, Register<float>));
  } else if constexpr (F == Format::e8m0) {  // 0 is a subnormal, and 255 NaN
    const Words power = (high >> 1) & 0x7f800000U;
    if constexpr (Finite) return power;
    const auto ends = reinterpret_cast<Words>((power == 0) | (power == 0x7f800000U));
    return power | (ends & 0x00400000U);
  } else {
    return decode_high_few_bits<F, Finite>(high);
  }
}

/// Rows of a panel that are transposed together; a square of 16 x 16 words is joined from two strips.
inline constexpr int kStripRows = kWords < 8 ? kWords : 8;
inline constexpr bool kJoined = kWords > kStripRows;

/// Of four rows: words 4 l + j of all of them become the 128 bits l of register j.
NANSCOPE_FN void transpose_four(const Words (&rows)[4], Words (&words)[4]) {
  constexpr WordSequence kAll{};
  constexpr std::make_integer_sequence<int, kWords / 2> kPairs{};
  const Words low = detail::zip<false>(rows[0], rows[1], kAll);
  const Words high = detail::zip<true>(rows[0], rows[1], kAll);
  const Words next_low = detail::zip<false>(rows[2], rows[3], kAll);
  const Words next_high = detail::zip<true>(rows[2], rows[3], kAll);
  words[0] = detail::zip_pairs<false>(low, next_low, kPairs);
  words[1] = detail::zip_pairs<true>(low, next_low, kPairs);
  words[2] = detail::zip_pairs<false>(high, next_high, kPairs);
  words[3] = detail::zip_pairs<true>(high, next_high, kPairs);
}

/// Registers of a square whose rows are transposed together.
inline constexpr int kFours = kWords / 4;

/// Words j, j + 4 and so on of a square, from its rows four by four.
NANSCOPE_FN void join_fours(const Words (&fours)[kFours][4], int j, Words (&words)[kFours]) {
  constexpr WordSequence kAll{};
  if constexpr (kFours == 1) {
    words[0] = fours[0][j];
  } else if constexpr (kFours == 2) {
    words[0] = detail::every_second<0>(fours[0][j], fours[1][j], kAll);
    words[1] = detail::every_second<1>(fours[0][j], fours[1][j], kAll);
  } else {
    const Words upper = detail::every_second<0>(fours[0][j], fours[1][j], kAll);
    const Words lower = detail::every_second<0>(fours[2][j], fours[3][j], kAll);
    const Words next_upper = detail::every_second<1>(fours[0][j], fours[1][j], kAll);
    const Words next_lower = detail::every_second<1>(fours[2][j], fours[3][j], kAll);
    words[0] = detail::every_second<0>(upper, lower, kAll);
    words[1] = detail::every_second<0>(next_upper, next_lower, kAll);
    words[2] = detail::every_second<1>(upper, lower, kAll);
    words[3] = detail::every_second<1>(next_upper, next_lower, kAll);
  }
}

/// Columns become rows: of one strip, register i of the result holds word i of all rows, or words i and 8 + i of them
/// in every second 128 bits where a register holds two strips.
NANSCOPE_FN void transpose_strip(const Words (&rows)[kStripRows], Words (&strip)[kStripRows]) {
  constexpr int kParts = kStripRows / 4;
  constexpr WordSequence kAll{};
  Words parts[kParts][4];
  NANSCOPE_UNROLL for (int g = 0; g < kParts; ++g) {
    const Words four[4] = {rows[4 * g], rows[4 * g + 1], rows[4 * g + 2], rows[4 * g + 3]};
    transpose_four(four, parts[g]);
  }
  NANSCOPE_UNROLL for (int j = 0; j < 4; ++j) {
    if constexpr (kParts == 1) {
      strip[j] = parts[0][j];
    } else {
      strip[j] = detail::every_second<0>(parts[0][j], parts[1][j], kAll);
      strip[4 + j] = detail::every_second<1>(parts[0][j], parts[1][j], kAll);
    }
  }
}

/// The square of a strip and the one below it.
NANSCOPE_FN void join_strips(const Words (&upper)[kStripRows], const Words (&lower)[kStripRows],
                             Words (&square)[kWords]) {
  constexpr WordSequence kAll{};
  NANSCOPE_UNROLL for (int i = 0; i < kStripRows; ++i) {
    square[i] = detail::every_second<0>(upper[i], lower[i], kAll);
    square[kWords - kStripRows + i] = detail::every_second<1>(upper[i], lower[i], kAll);
  }
}

/// Where the 32 rows of a panel begin.
struct PanelRows {
  const char* from[kLanes];
};

/// A strip of a panel's words: rows from `row` on, bytes from `first` of each. What lies `ahead` bytes behind them is
/// asked for: a CPU's own prefetchers do not follow so many rows.
template <bool Ahead>
NANSCOPE_FN void load_strip(const PanelRows& panel, int row, std::int64_t first, [[maybe_unused]] std::int64_t ahead,
                            Words (&strip)[kStripRows]) {
  Words rows[kStripRows];
  NANSCOPE_UNROLL for (int i = 0; i < kStripRows; ++i) {
    const char* from = panel.from[row + i] + first;
    if constexpr (Ahead) __builtin_prefetch(from + ahead);
    std::memcpy(&rows[i], from, sizeof(Words));
  }
  transpose_strip(rows, strip);
}

/// Weights that a word holds.
template <Format F>
inline constexpr int kPerWord = 32 / kFormatTable[static_cast<std::size_t>(F)].bits;
/// Whether they are codes that have scales.
template <Format F>
inline constexpr bool kScaled = kPerWord<F> > 2;

/// Weights of a row of a transposed square, those in the lower bits of a word first.
template <Format F, bool Finite = false, class Use>
NANSCOPE_FN void decode_words(Words words, const Use& use) {
  if constexpr (F == Format::f32) {
    use(0, words);
  } else if constexpr (F == Format::f16) {
    use(0, decode_high_f16(words << 16));
    use(1, decode_high_f16(words));
  } else if constexpr (F == Format::bf16) {
    use(0, words << 16);
    use(1, words & 0xffff0000U);
  } else {
    NANSCOPE_UNROLL for (int k = 0; k < kPerWord<F>; ++k) use(k, decode_few_bits<F, Finite>(words, k));
  }
}

/// The most words of a row that are decoded at once.
inline constexpr std::int64_t kMostWords = 256;

/// Weights that are the values of their codes.
struct Unscaled {
  __attribute__((always_inline)) Words operator()(std::int64_t, int, Words weights) const { return weights; }
};

/// The weights of a square of words from `word` on, of the rows of register `part`, to every 32nd float at `to`.
template <Format F, bool Finite, class Scaled>
NANSCOPE_FN void decode_square(const Words (&square)[kWords], std::int64_t word, int part, float* to,
                               const Scaled& scaled) {
  NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) {
    decode_words<F, Finite>(
        square[i], [ to, &scaled, word, i, part ](int k, Words weights) __attribute__((always_inline)) {
          const Words values = scaled(word + i, part, weights);
          std::memcpy(to + (i * kPerWord<F> + k) * kLanes, &values, sizeof(values));
        });
  }
}

/// `words` words of each row from byte `first` on, as (depth, 32) f32 at `slice`. One strip after another: see
/// few_rows.h for what becomes of 16 rows side by side. scaled(word, part, weights): what weights of a word count from
/// `first`, of the rows of register `part`, stand for.
template <Format F, class Scaled = Unscaled>
NANSCOPE_CALLED void decode_panel(const PanelRows& panel, std::int64_t first, std::int64_t words, float* slice,
                                  const Scaled& scaled = {}) {
  Words upper[kJoined ? kMostWords / kWords : 1][kStripRows];
  for (int part = 0; part < U32::kCount; ++part) {
    for (std::int64_t word = 0; word < words && kJoined; word += kWords) {
      load_strip<false>(panel, part * kWords, first + word * 4, 0, upper[word / kWords]);
    }
    for (std::int64_t word = 0; word < words; word += kWords) {
      Words square[kWords];
      Words strip[kStripRows];
      load_strip<false>(panel, (part + 1) * kWords - kStripRows, first + word * 4, 0, strip);
      if constexpr (kJoined) {
        join_strips(upper[word / kWords], strip, square);
      } else {
        NANSCOPE_UNROLL for (int i = 0; i < kStripRows; ++i) square[i] = strip[i];
      }
      float* to = slice + word * kPerWord<F> * kLanes + part * kWords;
      if (kHasSpecial<F> && any_special(special_codes<F>(square))) {
        decode_square<F, false>(square, word, part, to, scaled);
      } else {
        decode_square<F, true>(square, word, part, to, scaled);
      }
    }
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
