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
  bool terms = false;          ///< any is not 0
};

/// Sums over keys: of the weighted rows, of their magnitudes, and of what they are off by, as far as that is not null.
struct MixedRow {
  double* value = nullptr;
  double* magnitude = nullptr;
  double* error = nullptr;
};

/// Rows of keys or values from some channel on, with the weight of each.
struct WeightedRows {
  const double* weights = nullptr;
  const double* slacks = nullptr;  ///< how far each weight may be off
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
  /// Adds weight * row, its magnitude, and |weight| * error, key by key. A key without weight and slack is passed over.
  void (*mix)(const WeightedRows& rows, const MixedRow& into);
  /// Adds slack * |row - value|, or slack * |row| where value is null, to the error.
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
