#pragma once
#include <cstdint>

/// The loops over every element of what is recomputed, compiled once for every instruction set. All of them give the
/// same bits.
namespace nanscope {

/// Keys that dots() goes over at once: their rows of channels hold room for a multiple of so many.
inline constexpr std::int64_t kKeysAtOnce = 16;

/// A row of an output beside what it should be.
struct RowPair {
  const float* actual = nullptr;
  const float* expected = nullptr;
  const float* bound = nullptr;
  const float* deviation =
      nullptr;  ///< standard deviation of each element's rounding, 0: not known; null: of none is it
  std::int64_t columns = 0;
  double lowest = 0;  ///< that the output's format holds
  double largest = 0;
  double hidden = 0;    ///< a value at or below it is not judged; NaN: none is
  double farthest = 0;  ///< no distance counts as more in `squares`
};

/// Columns that compare() goes over at once: the terms of a row hold room for a multiple of so many.
inline constexpr std::int64_t kColumnsAtOnce = 8;

/// What each element of a row adds to the sums over an output: 0 where it is not judged.
struct RowTerms {
  double* bounds = nullptr;
  double* distance = nullptr;
  double* squares = nullptr;
};

struct RowJudged {
  std::int64_t elements = 0;
  std::int64_t explained = 0;  ///< of them, within the bound
  double largest = 0;          ///< of the distances in units of the bound
  std::int64_t measured = 0;   ///< elements whose deviation is known
  std::int64_t measured_explained = 0;
  double measured_squares = 0;  ///< of the distances of those, in units of the deviation
  bool terms = false;           ///< any is not 0
};

/// Sums over keys, as far as they are not null: of the weighted rows, of their squares, of what they are off by, and of
/// the variance of that.
struct MixedRow {
  double* value = nullptr;
  double* squares = nullptr;
  double* error = nullptr;
  double* variance = nullptr;
};

/// Rows of keys or values from some channel on, with the weight of each.
struct WeightedRows {
  const double* weights = nullptr;
  const double* slacks = nullptr;      ///< how far each weight may be off
  const double* deviations = nullptr;  ///< the standard deviation of each weight
  const float* rows = nullptr;
  const float* errors = nullptr;  ///< of the rows; null: none
  std::int64_t keys = 0;
  std::int64_t stride = 0;  ///< from one row to the next
  std::int64_t width = 0;
};

/// `stride` keys, a multiple of kKeysAtOnce: key j has channel i at numbers[i * stride + j]. A row's product with one
/// is four sums over i % 4, the last width % 4 terms on the first of them.
struct TurnedKeys {
  const float* numbers = nullptr;
  std::int64_t width = 0;
  std::int64_t stride = 0;
};

struct ElementLoops {
  /// Judges the elements of a row: those that are finite, as their expected value and their bound are.
  void (*compare)(const RowPair& row, const RowTerms& terms, RowJudged& into);
  /// Each of `count` rows of x with all keys, one row of sums after another.
  void (*dots)(const float* x, std::int64_t count, const TurnedKeys& keys, double* sums);
  /// Adds weight * row, its square, and |weight| * error, key by key. A key without weight and slack is passed over.
  void (*mix)(const WeightedRows& rows, const MixedRow& into);
  /// Adds slack * |row - value| to the error and the square of deviation * (row - value) to the variance. A value that
  /// is null counts as 0.
  void (*spread)(const WeightedRows& rows, const MixedRow& into);
};

/// Those that this machine can run, the best last.
struct AllElementLoops {
  const ElementLoops* loops[3] = {};
  int count = 0;
};
AllElementLoops all_element_loops();
/// The best of them.
const ElementLoops& element_loops();

}  // namespace nanscope
