#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "instrument/diff/chances.h"
#include "instrument/diff/compare_rows.h"

namespace nanscope::align {

/// What two healthy runs may differ by in a pair of groups, and what is beyond it.
struct Floor {
  double rounding = 0;              ///< unit roundoff of the coarser of the formats that led here
  double bound = 0;                 ///< difference that rounding explains, of a row's largest element
  std::optional<Robust> noise;      ///< of ln of the relative differences of its rows
  std::optional<Robust> repeated;   ///< the same of A and its repetition
  std::vector<std::size_t> out;     ///< rows of the pair that stand out
  std::vector<std::size_t> chosen;  ///< rows beyond rounding because a choice before them, such as a router's, differs
  bool whole = false;  ///< the tensor as a whole does: its inputs are healthy, and most of its rows are not
  double chance = 1;   ///< the largest one with which chance gives a row that stands out
};

/// A pair of groups, and its rows.
struct Measured {
  Partner partner;
  PairApart apart;
  Floor floor;
  std::vector<std::size_t> inputs;  ///< pairs that lead to it, of this list
  bool chooses = false;             ///< integers that a computation put out: experts, tokens

  /// Whether rounding explains how far a row is off.
  bool explains(const RowApart& row) const;
  /// Whether the noise that a repetition of A has explains it.
  bool is_repeated(const RowApart& row) const;
};

/// Fills in the floors of pairs, which stand in the order of execution. `repeated`: of A and its repetition, by A's
/// group; or empty.
void find_floors(Side& a, Side& b, std::vector<Measured>& pairs, const std::vector<Measured>& repeated);

}  // namespace nanscope::align
