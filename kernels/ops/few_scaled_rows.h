#pragma once
/// One row of x, as in a decode step, times weights of codes and scales. They are read as few_rows.h reads others; but
/// of codes that are so short in coming, one chain of sums alone takes longer than their way from memory. So all parts
/// of one or two panels are multiplied side by side, word by word, while the next squares are loaded and wait in the
/// level 1 cache.
#include "kernels/ops/few_rows.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// `Side` panels side by side, in `Side` times as many parts: how far parts are apart, and upper strips ahead of lower
/// ones, in words.
template <int Side>
struct ScaledParts {
  static constexpr int kParts = Side * U32::kCount;
  static constexpr std::int64_t kLag = Side == 1 ? kPartLag : kPartLag / 4;  // what waits has to stay in level 1
  static constexpr std::int64_t kLead = kJoined ? kParts * kLag : 0;
  struct Part {
    StripPlace upper;
    StripPlace lower;
    Register<float> sum;
    Words waiting[kJoined ? kLead / kWords : 1][kStripRows];
  };
  Part parts[kParts];
};

/// What the parts multiply next: a square each, of places of their own.
template <int Side>
struct ScaledSquares {
  static constexpr int kParts = Side * U32::kCount;
  Words square[kParts][kWords];
  StripPlace place[kParts];
  bool given[kParts];  ///< else there is none, and what comes of it is nobody's
  Words special;       ///< as special_codes() has it
};

template <int Side>
NANSCOPE_FN void load_side(const FewRows& rows, int part, int row, StripPlace& place, Words (&strip)[kStripRows]) {
  const std::int64_t first = rows.first + place.word * 4;
  const std::int64_t ahead = first + kAheadBytes < rows.end ? kAheadBytes : kAheadBytes + rows.behind;
  load_strip<true>(rows.from[place.panel * Side + part / U32::kCount], row, first, ahead, strip);
  place.word += kWords;
  if (place.word < rows.words) return;
  place.word = 0;
  ++place.panel;
}

/// The square of part `part` at `at`, and the upper strip of a later one.
template <Format F, int Side>
NANSCOPE_FN void load_scaled_square(const FewRows& rows, int part, std::int64_t at, ScaledParts<Side>& state,
                                    ScaledSquares<Side>& next) {
  using Parts = ScaledParts<Side>;
  const std::int64_t all = rows.panels * rows.words;
  const int row = part % U32::kCount * kWords;
  auto& own = state.parts[part];
  next.given[part] = at >= 0 && at < all;
  next.place[part] = next.given[part] ? own.lower : StripPlace{};
  if (next.given[part]) {
    Words strip[kStripRows];
    Words square[kWords];
    load_side<Side>(rows, part, row + kWords - kStripRows, own.lower, strip);
    if constexpr (kJoined) {
      join_strips(own.waiting[at / kWords % (Parts::kLead / kWords)], strip, square);
    } else {
      NANSCOPE_UNROLL for (int i = 0; i < kStripRows; ++i) square[i] = strip[i];
    }
    NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) {
      next.special |= special_codes<F>(square[i]);
      next.square[part][i] = square[i];
    }
  }
  if constexpr (kJoined) {
    const std::int64_t ahead = at + Parts::kLead;
    if (ahead >= 0 && ahead < all) {
      load_side<Side>(rows, part, row, own.upper, own.waiting[ahead / kWords % (Parts::kLead / kWords)]);
    }
  }
}

/// Word `i` of each square, side by side: one chain of sums alone would take longer than its codes from memory.
template <Format F, bool Finite, int Side>
NANSCOPE_FN void multiply_words(const ScaledSquares<Side>& now, int i,
                                const float* const (&x)[ScaledSquares<Side>::kParts],
                                const PanelScales (&scales)[ScaledSquares<Side>::kParts],
                                Register<float> (&sums)[ScaledSquares<Side>::kParts]) {
  constexpr int kParts = ScaledSquares<Side>::kParts;
  Words words[kParts];
  Register<float> scale[kParts];
  NANSCOPE_UNROLL for (int part = 0; part < kParts; ++part) {
    words[part] = now.square[part][i];
    std::memcpy(&scale[part], scales[part].at(now.place[part].word + i, part % U32::kCount), sizeof(scale[part]));
  }
  NANSCOPE_UNROLL for (int k = 0; k < kPerWord<F>; ++k) {
    NANSCOPE_UNROLL for (int part = 0; part < kParts; ++part) {
      const auto value = reinterpret_cast<Register<float>>(decode_few_bits<F, Finite>(words[part], k)) * scale[part];
      sums[part] = detail::fma(F32(x[part][i * kPerWord<F> + k]).v[0], value, sums[part]);
    }
  }
}

/// Multiplies the squares of one step, while those of the next, at `at`, are loaded.
template <Format F, bool Finite, int Side>
NANSCOPE_FN void multiply_squares(const FewRows& rows, const ScaledSquares<Side>& now, std::int64_t at,
                                  ScaledParts<Side>& state, ScaledSquares<Side>& next) {
  using Parts = ScaledParts<Side>;
  constexpr int kParts = Parts::kParts;
  constexpr int kShare = kWords / kParts;
  const float* x[kParts];
  PanelScales scales[kParts];
  Register<float> sums[kParts];
  float* stored[kParts];
  NANSCOPE_UNROLL for (int part = 0; part < kParts; ++part) {
    const StripPlace& place = now.place[part];
    const std::int64_t panel = place.panel * Side + part / U32::kCount;
    stored[part] = rows.sums + panel * kLanes + part % U32::kCount * kWords;
    x[part] = rows.x + place.word * kPerWord<F>;
    scales[part] = rows.scales;
    scales[part].values += panel * rows.scales_stride;
    sums[part] = state.parts[part].sum;
    if (place.word == 0) std::memcpy(&sums[part], stored[part], sizeof(Words));
  }
  next.special = Words{};
  for (int part = 0; part < kParts; ++part) {
    load_scaled_square<F>(rows, part, at - part * Parts::kLag, state, next);
    for (int i = part * kShare; i < (part + 1) * kShare; ++i) {
      multiply_words<F, Finite, Side>(now, i, x, scales, sums);
    }
  }
  NANSCOPE_UNROLL for (int part = 0; part < kParts; ++part) {
    if (!now.given[part]) continue;
    state.parts[part].sum = sums[part];
    if (now.place[part].word + kWords == rows.words) std::memcpy(stored[part], &sums[part], sizeof(Words));
  }
}

/// One row of x times codes and scales.
template <Format F, int Side>
NANSCOPE_CALLED void add_scaled_row(const FewRows& rows) {
  using Parts = ScaledParts<Side>;
  const std::int64_t end = rows.panels * rows.words + (Parts::kParts - 1) * Parts::kLag;
  Parts state;
  ScaledSquares<Side> squares[2];
  std::int64_t step = -Parts::kLead;
  for (; step <= 0; step += kWords) {  // up to the first squares, upper strips alone
    squares[0].special = Words{};
    for (int part = 0; part < Parts::kParts; ++part) {
      load_scaled_square<F>(rows, part, step - part * Parts::kLag, state, squares[0]);
    }
  }
  for (int turn = 0; step - kWords < end; turn = 1 - turn) {
    if (kFirstSpecial<F> < 0x80 && any_special(squares[turn].special)) {
      multiply_squares<F, false, Side>(rows, squares[turn], step, state, squares[1 - turn]);
    } else {
      multiply_squares<F, true, Side>(rows, squares[turn], step, state, squares[1 - turn]);
    }
    step += kWords;
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
