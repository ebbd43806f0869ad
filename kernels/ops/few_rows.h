#pragma once
/// A few rows of x, as in a decode step, times weights as they are stored. Each weight is used at once and never again:
/// what takes time is its way from memory, and the order in which weights are read is made for that.
///
/// The 32 rows of a panel are read side by side. Where rows are a multiple of 4 KiB apart, as in most models, the same
/// column of all rows falls into one set of the level 1 cache, which keeps 8 or 12 lines: the lines that were asked for
/// early, and the second half of those that a register begins in the middle of, would be thrown out before they are
/// used. So every strip of 8 rows is at a column of its own, kStripDistance words from the next strip's. A strip that
/// is ahead of the one it is joined with waits in `waiting`, transposed.
#include "kernels/ops/scaled_panels.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// The most rows that are computed in this way. Without fma in registers it is no gain.
inline constexpr int kFewRows = kWords < 8 ? 0 : 4;
/// Words between the columns of strips; how many bytes ahead of a row's weights its memory is asked for.
inline constexpr std::int64_t kStripDistance = 128;
inline constexpr std::int64_t kAheadBytes = 384;

/// Words that the upper strip of a square is ahead of the lower one, and a panel's square ahead of the next.
inline constexpr std::int64_t kUpperLead = kJoined ? 2 * kStripDistance : 0;
inline constexpr std::int64_t kPartLag = kStripDistance;
inline constexpr std::int64_t kWaiting = kJoined ? kUpperLead / kWords : 1;

/// `panels` panels, `words` words of each row from byte `first` on, times as many columns of x.
struct FewRows {
  const PanelRows* from;
  std::int64_t panels;
  std::int64_t first;
  std::int64_t words;
  std::int64_t end;     ///< byte of the row from which on nothing more is asked for, but ...
  std::int64_t behind;  ///< so many bytes further, where the next panel's row goes on
  const float* x;       ///< (Rows, x_stride)
  std::int64_t x_stride;
  float* sums;  ///< (Rows, sums_stride), 32 a panel
  std::int64_t sums_stride;
  PanelScales scales = {};         ///< of codes, of the first panel
  std::int64_t scales_stride = 0;  ///< floats from one panel's to the next
};

/// What a strip reads next: it goes through all panels without a pause.
struct StripPlace {
  std::int64_t panel = 0;
  std::int64_t word = 0;
};

NANSCOPE_FN void load_next(const FewRows& rows, int row, StripPlace& place, Words (&strip)[kStripRows]) {
  const std::int64_t first = rows.first + place.word * 4;
  const std::int64_t ahead = first + kAheadBytes < rows.end ? kAheadBytes : kAheadBytes + rows.behind;
  load_strip<true>(rows.from[place.panel], row, first, ahead, strip);
  place.word += kWords;
  if (place.word < rows.words) return;
  place.word = 0;
  ++place.panel;
}

/// The sums of the rows of one register of a panel.
template <int Rows>
struct FewSums {
  Register<float> row[Rows];
};

/// Adds a square of weights of the rows of register `part`, at a place.
template <Format F, int Rows>
NANSCOPE_FN void multiply_square(const Words (&square)[kWords], const FewRows& rows, int part, const StripPlace& place,
                                 FewSums<Rows>& sums) {
  FewSums<Rows> sum = sums;
  PanelScales scales = rows.scales;
  scales.values += place.panel * rows.scales_stride;
  NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) {
    const float* x = rows.x + (place.word + i) * kPerWord<F>;
    decode_words<F>(
        square[i], [ x, &rows, &sum, &scales, &place, i, part ](int k, Words codes) __attribute__((always_inline)) {
          const Words weights = kScaled<F> ? scales(place.word + i, part, codes) : codes;
          NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
            sum.row[r] =
                detail::fma(F32(x[r * rows.x_stride + k]).v[0], reinterpret_cast<Register<float>>(weights), sum.row[r]);
          }
        });
  }
  sums = sum;
}

/// The rows of one register of each panel, on their way through the panels.
template <int Rows>
struct FewPart {
  StripPlace upper;
  StripPlace lower;
  FewSums<Rows> sums;
  Words waiting[kWaiting][kStripRows];
};

/// One square of part `part`, and the upper strip of a later one; `at` counts the words of all panels.
template <Format F, int Rows>
NANSCOPE_FN void add_square(const FewRows& rows, int part, std::int64_t at, FewPart<Rows>& state) {
  const std::int64_t all = rows.panels * rows.words;
  if (at >= 0 && at < all) {
    const StripPlace place = state.lower;
    float* stored = rows.sums + place.panel * kLanes + part * kWords;
    Words strip[kStripRows];
    Words square[kWords];
    load_next(rows, (part + 1) * kWords - kStripRows, state.lower, strip);
    if constexpr (kJoined) {
      join_strips(state.waiting[at / kWords % kWaiting], strip, square);
    } else {
      NANSCOPE_UNROLL for (int i = 0; i < kStripRows; ++i) square[i] = strip[i];
    }
    for (int r = 0; r < Rows && place.word == 0; ++r) {
      std::memcpy(&state.sums.row[r], stored + r * rows.sums_stride, sizeof(Words));
    }
    multiply_square<F, Rows>(square, rows, part, place, state.sums);
    for (int r = 0; r < Rows && state.lower.word == 0; ++r) {
      std::memcpy(stored + r * rows.sums_stride, &state.sums.row[r], sizeof(Words));
    }
  }
  if constexpr (kJoined) {
    const std::int64_t next = at + kUpperLead;
    if (next >= 0 && next < all) {
      load_next(rows, part * kWords, state.upper, state.waiting[next / kWords % kWaiting]);
    }
  }
}

template <Format F, int Rows>
NANSCOPE_CALLED void add_few_rows(const FewRows& rows) {
  constexpr int kParts = U32::kCount;
  const std::int64_t end = rows.panels * rows.words + (kParts - 1) * kPartLag;
  FewPart<Rows> parts[kParts];
  for (std::int64_t step = -kUpperLead; step < end; step += kWords) {
    if constexpr (Rows == 1 && kParts == 2) {  // or a sum would go through memory from square to square
      add_square<F, Rows>(rows, 0, step, parts[0]);
      add_square<F, Rows>(rows, 1, step - kPartLag, parts[1]);
    } else {
      for (int part = 0; part < kParts; ++part) add_square<F, Rows>(rows, part, step - part * kPartLag, parts[part]);
    }
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
