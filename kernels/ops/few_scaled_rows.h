#pragma once
/// One row of x, as in a decode step, times weights of codes and scales. So few bytes come so soon that their way from
/// memory is not all that takes time, and both have to go on at once:
///
/// Four registers of rows are multiplied side by side, word by word: one chain of sums alone would wait for itself.
/// Between two words a part of the next square is transposed. A CPU looks ahead by some hundred instructions, so that
/// a whole square would stand between the products instead of beside them.
///
/// Memory is asked for along the rows, kAskedBytes of one after another, into the level 2 cache. Where rows are a
/// multiple of 2 or 4 KiB apart, as in most models, the same column of all rows falls into a few sets of level 1, which
/// would lose them before they are used; and memory is fastest where bytes that follow each other are read.
#include "kernels/ops/scaled_panels.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Registers of rows that are multiplied side by side, and the panels that they are.
inline constexpr int kSides = 4;
inline constexpr int kSidePanels = kWords < 8 ? 1 : kSides * kWords / kLanes;
/// Bytes of a row that are asked for at a time, and how many squares before they are used at least.
inline constexpr std::int64_t kAskedBytes = 512;
inline constexpr std::int64_t kAskedSquares = 4;

/// `groups` times kSidePanels panels: `words` words of each row from byte `first` on, in whole squares.
struct SideRows {
  const PanelRows* panels;
  std::int64_t groups;
  std::int64_t first;
  std::int64_t words;
  std::int64_t stride;  ///< bytes from row to row
  const char* end;      ///< of all rows: what lies behind is not asked for
};

/// Which squares of a group are loaded next: one behind another, through all groups without a pause.
struct SquareColumn {
  std::int64_t group = 0;
  std::int64_t word = 0;

  __attribute__((always_inline)) void advance(const SideRows& rows) {
    word += kWords;
    if (word < rows.words) return;
    word = 0;
    if (group + 1 < rows.groups) ++group;  // else nobody multiplies what is loaded
  }
};

/// What is asked for next: kAskedBytes of each row of a group, then of each its next ones.
struct AskedRows {
  const char* from = nullptr;   ///< the first row of the group, at byte SideRows::first
  const char* piece = nullptr;  ///< of the next row
  std::int64_t byte = 0;        ///< of the rows, where pieces begin
  std::int64_t left = 0;        ///< rows that they are still to be asked of
  std::int64_t owed = 0;        ///< bytes that were loaded since

  /// As many bytes as are loaded now.
  __attribute__((always_inline)) void ask_for(std::int64_t loaded, const SideRows& rows) {
    for (owed += loaded; owed > 0;) {
      if (left == 0) turn(rows);
      owed -= kAskedBytes;  // or less at a row's end, where the next row's beginning is asked for as well
      if (piece < rows.end) {
        NANSCOPE_UNROLL for (std::int64_t i = 0; i < kAskedBytes; i += 64) __builtin_prefetch(piece + i, 0, 2);
      }
      piece += rows.stride;
      --left;
    }
  }
  __attribute__((always_inline)) void turn(const SideRows& rows) {
    const std::int64_t all = rows.words * 4;
    owed += byte + kAskedBytes <= all ? 0 : (byte + kAskedBytes - all) * kSides * kWords;
    byte += kAskedBytes;
    if (byte >= all) {
      byte = 0;
      from += kSides * kWords * rows.stride;
    }
    piece = from + byte;
    left = kSides * kWords;
  }
};

/// A square of each register of rows.
struct SideSquares {
  Words words[kWords][kSides];
  Words special;  ///< as special_codes() has it, of all of them
};

/// Squares that are multiplied, and those after them, which are made meanwhile.
struct MadeSquares {
  SideSquares squares[2];
  Words fours[2][kFours][4];  ///< of one square each, before its rows are joined
  SquareColumn next;          ///< what is made; of its first register the rows have been loaded
  SquareColumn after;         ///< what is made after that
  AskedRows asked;
  int now = 0;  ///< the squares that are multiplied
};

/// Rows of one register, at the column that is loaded.
struct SideRow {
  const char* const* from;
  std::int64_t byte;

  __attribute__((always_inline)) SideRow(const SideRows& rows, const SquareColumn& column, int side)
      : from(rows.panels[column.group * kSidePanels + side / U32::kCount].from + side % U32::kCount * kWords),
        byte(rows.first + column.word * 4) {}

  /// Rows 4 `four` to 4 `four` + 3.
  __attribute__((always_inline)) void load(int four, Words (&words)[4]) const {
    Words loaded[4];
    NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) std::memcpy(&loaded[i], from[4 * four + i] + byte, sizeof(Words));
    transpose_four(loaded, words);
  }
};

/// Makes the square of register `side` of the next squares and loads the rows of the one after it, in kFours parts,
/// and calls between(i) after part i.
template <Format F, class Between>
NANSCOPE_FN void make_square(const SideRows& rows, int side, MadeSquares& made, const Between& between) {
  const SideRow row(rows, side + 1 < kSides ? made.next : made.after, (side + 1) % kSides);
  SideSquares& squares = made.squares[1 - made.now];
  Words(*square)[kSides] = squares.words;
  const Words(&fours)[kFours][4] = made.fours[side % 2];
  Words(&loaded)[kFours][4] = made.fours[(side + 1) % 2];
  _Pragma("GCC unroll 1") for (int i = 0; i < kFours; ++i) {
    NANSCOPE_UNROLL for (int j = 4 / kFours * i; j < 4 / kFours * (i + 1); ++j) {
      Words words[kFours];
      join_fours(fours, j, words);
      NANSCOPE_UNROLL for (int l = 0; l < kFours; ++l) {
        square[4 * l + j][side] = words[l];
        if constexpr (kHasSpecial<F>) squares.special |= special_codes<F>(words[l]);
      }
    }
    row.load(i, loaded[i]);
    between(i);
  }
}

/// The squares made become those that are multiplied.
NANSCOPE_FN void turn_squares(const SideRows& rows, MadeSquares& made) {
  made.squares[made.now].special = Words{};
  made.now = 1 - made.now;
  made.next.advance(rows);
  made.after.advance(rows);
}

/// Makes the first squares.
template <Format F>
NANSCOPE_CALLED void begin_squares(const SideRows& rows, MadeSquares& made) {
  for (SideSquares& squares : made.squares) squares.special = Words{};
  made.asked.from = rows.panels[0].from[0] + rows.first;
  made.asked.piece = made.asked.from;
  made.asked.ask_for(kAskedSquares * kSides * kWords * kWords * 4, rows);
  made.after.advance(rows);
  const SideRow first(rows, made.next, 0);
  for (int i = 0; i < kFours; ++i) first.load(i, made.fours[0][i]);
  for (int side = 0; side < kSides; ++side) make_square<F>(rows, side, made, [](int) {});
  turn_squares(rows, made);
}

/// Multiplies squares with inputs at x and with scales from `word` on, while the next ones are made.
template <Format F, bool Finite>
NANSCOPE_FN void multiply_squares(const SideRows& rows, const float* x, const PanelScales& scales, std::int64_t word,
                                  MadeSquares& made, Register<float> (&sums)[kSides]) {
  for (int side = 0; side < kSides; ++side) {
    made.asked.ask_for(kFours * kSides * kWords * 4, rows);
    const Words(*words)[kSides] = made.squares[made.now].words + side * kFours;
    const float* inputs = x + side * kFours * kPerWord<F>;
    const std::int64_t first = word + side * kFours;
    make_square<F>(
        rows, side, made, [ words, inputs, first, &scales, &sums ](int i) __attribute__((always_inline)) {
          Register<float> scale[kSides];
          const float* of_word = scales.at(first + i, 0);
          NANSCOPE_UNROLL for (int s = 0; s < kSides; ++s) {
            std::memcpy(&scale[s], of_word + s / U32::kCount * kScaleFloats + s % U32::kCount * kWords,
                        sizeof(scale[s]));
          }
          NANSCOPE_UNROLL for (int k = 0; k < kPerWord<F>; ++k) {
            const Register<float> input = F32(inputs[i * kPerWord<F> + k]).v[0];
            NANSCOPE_UNROLL for (int s = 0; s < kSides; ++s) {
              const auto value =
                  reinterpret_cast<Register<float>>(decode_few_bits<F, Finite>(words[i][s], k)) * scale[s];
              sums[s] = detail::fma(input, value, sums[s]);
            }
          }
        });
  }
}

/// Adds the next `words` words of a group to its sums, (kSidePanels, 32). Scales are of the first panel, those of the
/// next one are kScaleFloats further.
template <Format F>
NANSCOPE_CALLED void add_scaled_row(const SideRows& rows, const float* x, const PanelScales& scales, std::int64_t words,
                                    MadeSquares& made, float* stored) {
  Register<float> sums[kSides];
  std::memcpy(sums, stored, sizeof(sums));
  for (std::int64_t word = 0; word < words; word += kWords) {
    if (kHasSpecial<F> && any_special(made.squares[made.now].special)) {
      multiply_squares<F, false>(rows, x + word * kPerWord<F>, scales, word, made, sums);
    } else {
      multiply_squares<F, true>(rows, x + word * kPerWord<F>, scales, word, made, sums);
    }
    turn_squares(rows, made);
  }
  std::memcpy(stored, sums, sizeof(sums));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
