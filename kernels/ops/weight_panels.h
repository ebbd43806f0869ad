#pragma once
/// Weights as they are stored, (N, K), to the panels that a product reads: 32 columns of f32 side by side. For the
/// registers of a CPU.
#include <cstring>
#include <utility>

#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// 32 bit words of a register: the side of the square that is transposed in registers.
inline constexpr int kWords = U32::kWidth;
/// How far ahead of a row's weights its memory is asked for.
inline constexpr int kPrefetchBytes = 256;
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

/// A square of words, row i in register i: columns become rows.
NANSCOPE_FN void transpose_words(Words (&rows)[kWords]) {
  constexpr int kParts = kWords / 4;  // of 128 bits
  constexpr WordSequence kAll{};
  constexpr std::make_integer_sequence<int, kWords / 2> kPairs{};
  Words parts[4][kParts];
  NANSCOPE_UNROLL for (int g = 0; g < kParts; ++g) {
    const Words low = detail::zip<false>(rows[4 * g], rows[4 * g + 1], kAll);
    const Words high = detail::zip<true>(rows[4 * g], rows[4 * g + 1], kAll);
    const Words next_low = detail::zip<false>(rows[4 * g + 2], rows[4 * g + 3], kAll);
    const Words next_high = detail::zip<true>(rows[4 * g + 2], rows[4 * g + 3], kAll);
    parts[0][g] = detail::zip_pairs<false>(low, next_low, kPairs);
    parts[1][g] = detail::zip_pairs<true>(low, next_low, kPairs);
    parts[2][g] = detail::zip_pairs<false>(high, next_high, kPairs);
    parts[3][g] = detail::zip_pairs<true>(high, next_high, kPairs);
  }
  // parts[j][g] holds column 4 l + j of rows 4 g to 4 g + 3 in its 128 bits l.
  NANSCOPE_UNROLL for (int j = 0; j < 4; ++j) {
    if constexpr (kParts == 1) {
      rows[j] = parts[j][0];
    } else if constexpr (kParts == 2) {
      rows[j] = detail::every_second<0>(parts[j][0], parts[j][1], kAll);
      rows[4 + j] = detail::every_second<1>(parts[j][0], parts[j][1], kAll);
    } else {
      const Words even = detail::every_second<0>(parts[j][0], parts[j][1], kAll);
      const Words odd = detail::every_second<1>(parts[j][0], parts[j][1], kAll);
      const Words next_even = detail::every_second<0>(parts[j][2], parts[j][3], kAll);
      const Words next_odd = detail::every_second<1>(parts[j][2], parts[j][3], kAll);
      rows[j] = detail::every_second<0>(even, next_even, kAll);
      rows[4 + j] = detail::every_second<0>(odd, next_odd, kAll);
      rows[8 + j] = detail::every_second<1>(even, next_even, kAll);
      rows[12 + j] = detail::every_second<1>(odd, next_odd, kAll);
    }
  }
}

/// Where the 32 rows of a panel begin.
struct PanelRows {
  const char* from[kLanes];
};

/// A square of one panel's words: rows from `part` * kWords on, bytes from `first` of each. The lines behind it are
/// asked for early: a CPU's own prefetchers do not follow 32 rows.
NANSCOPE_FN void load_square(const PanelRows& panel, int part, std::int64_t first, Words (&square)[kWords]) {
  NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) {
    const char* from = panel.from[part * kWords + i] + first;
    __builtin_prefetch(from + kPrefetchBytes);
    std::memcpy(&square[i], from, sizeof(Words));
  }
  transpose_words(square);
}

/// Weights of a row of a transposed square: of 16 bits both, the lower one first.
template <Format F, class Use>
NANSCOPE_FN void decode_words(Words words, const Use& use) {
  if constexpr (F == Format::f32) {
    use(0, words);
  } else if constexpr (F == Format::f16) {
    use(0, decode_high_f16(words << 16));
    use(1, decode_high_f16(words));
  } else {
    use(0, words << 16);
    use(1, words & 0xffff0000U);
  }
}

template <Format F>
inline constexpr int kPerWord = F == Format::f32 ? 1 : 2;

/// `words` words of each row from byte `first` on, as (depth, 32) f32 at `slice`.
template <Format F>
NANSCOPE_CALLED void decode_panel(const PanelRows& panel, std::int64_t first, std::int64_t words, float* slice) {
  for (std::int64_t word = 0; word < words; word += kWords) {
    NANSCOPE_UNROLL for (int part = 0; part < U32::kCount; ++part) {
      Words square[kWords];
      load_square(panel, part, first + word * 4, square);
      NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) {
        float* to = slice + (word + i) * kPerWord<F> * kLanes + part * kWords;
        decode_words<F>(
            square[i], [to](int k, Words weights)
                           __attribute__((always_inline)) { std::memcpy(to + k * kLanes, &weights, sizeof(weights)); });
      }
    }
  }
}

/// The same weights times one row of x, added to 32 sums without being stored.
template <Format F>
NANSCOPE_CALLED void add_row(const PanelRows& panel, std::int64_t first, std::int64_t words, const float* x,
                             float* sums) {
  F32 total = load_f32(sums, kLanes, 0.0F);
  for (std::int64_t word = 0; word < words; word += kWords) {
    NANSCOPE_UNROLL for (int part = 0; part < U32::kCount; ++part) {
      Words square[kWords];
      load_square(panel, part, first + word * 4, square);
      Register<float>& sum = total.v[part];
      NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) {
        const float* values = x + (word + i) * kPerWord<F>;
        decode_words<F>(
            square[i], [ values, &sum ](int k, Words weights) __attribute__((always_inline)) {
              sum = detail::fma(F32(values[k]).v[0], reinterpret_cast<Register<float>>(weights), sum);
            });
      }
    }
  }
  store_raw_f32(sums, total, kLanes);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
