#pragma once
#include <cstdint>
#include <vector>

#include "instrument/diff/partners.h"

namespace nanscope::align {

/// Two rows of one place.
struct RowMeeting {
  RowPlace place;
  const Occurrence* a = nullptr;
  const Occurrence* b = nullptr;
};
struct RowMeetings {
  std::vector<RowMeeting> rows;  ///< in A's order
  std::uint64_t only_a = 0;      ///< places without a partner
  std::uint64_t only_b = 0;
  std::vector<bool> met_a;  ///< sheets with a row that has a partner
  std::vector<bool> met_b;
};
RowMeetings row_meetings(Side& a, Side& b, const Partner& partner);

/// How far two rows that meet are apart.
struct RowApart {
  RowPlace place;
  RowRef a;  ///< of the first rank
  RowRef b;
  std::size_t rank_a = 0;  ///< of replicated ranks, which was read; else 0
  std::size_t rank_b = 0;
  double relative = 0;       ///< root mean square of the differences, of that of the row; infinite with `not_finite`
  double spread = 0;         ///< over how many columns the difference is spread: 1 if one holds it all
  double size = 0;           ///< the largest finite magnitude of both rows
  double largest = 0;        ///< difference of two finite elements
  std::int64_t channel = 0;  ///< where it is, or the first element that is finite in one row alone
  float value_a = 0;
  float value_b = 0;
  std::int64_t differing = 0;
  std::int64_t columns = 0;
  bool not_finite = false;
};

/// All rows of two groups that meet.
struct PairApart {
  std::vector<RowApart> rows;  ///< in A's order
  double square = 0;           ///< mean, of A's finite elements
  std::int64_t unread = 0;     ///< rows whose elements could not be had
  bool narrow = true;          ///< all elements of one side are numbers of bf16, whatever stores them
};

PairApart compare_rows(Side& a, Side& b, const Partner& partner, const RowMeetings& meetings);

/// By column, the squares of the differences of some rows, each as a share of the squares of its row: their sum is that
/// of the squares of `relative`.
std::vector<double> squares_by_column(Side& a, Side& b, const Partner& partner, const std::vector<RowApart>& rows);

}  // namespace nanscope::align
