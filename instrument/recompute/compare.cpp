/// How far the elements of an output are from what they should be.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/numbers/decode_span.h"
#include "core/run/mask.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/element_loops.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {

double distance_in_bounds(double value, double expected, double bound, Format format, bool hides) {
  const bool hidden = hides && hidden_by_mask(value);
  if (bound < 0 || !std::isfinite(value) || !std::isfinite(expected) || hidden)
    return std::numeric_limits<double>::quiet_NaN();
  const double largest = double{info(format).max_finite};
  const double lowest = format == Format::int8 ? -128 : -largest;  // asymmetric codes take all
  const double off = std::abs(value - std::clamp(expected, lowest, largest));
  if (off == 0) return 0;
  return bound > 0 ? off / bound : std::numeric_limits<double>::infinity();
}

namespace {

/// What the elements of a row come to.
struct JudgedRow {
  RowJudged judged;
  std::int64_t open = 0;
  bool not_finite = false;
  bool scattered = false;
  WorstElement worst;

  double mean_square() const { return judged.measured_squares / static_cast<double>(judged.measured); }
  /// The root mean square in units of the largest that rounding gives.
  double ratio() const { return std::sqrt(mean_square() / largest_mean_square(judged.measured)); }
};

/// Rows that one thread judges at a time, and what they add to the sums.
struct Rows {
  std::vector<float> actual;
  std::vector<double> terms;
  std::vector<JudgedRow> rows;

  RowTerms terms_of(std::size_t row, std::size_t width) {
    double* first = terms.data() + 3 * row * width;
    return {first, first + width, first + 2 * width};
  }
};

/// What is said of single elements of a row: most rows have none that takes saying.
void judge_elements(const RowPair& pair, const Tensor& out, std::int64_t row, bool live, JudgedRow& into) {
  const bool hides = may_hide(out.role);
  for (std::int64_t column = 0; column < pair.columns; ++column) {
    const double bound = double{pair.bound[column]};
    const double value = double{pair.actual[column]};
    if (bound < 0 || !std::isfinite(bound)) {
      if (live && !(hides && hidden_by_mask(value))) ++into.open;
      continue;
    }
    const double expected = double{pair.expected[column]};
    // Where NaN and Inf come from is another question; what is beyond the format is Inf, or its largest number.
    const bool hidden = hides && value < 0;
    if (!std::isfinite(value) && std::isfinite(expected) && !hidden && std::abs(expected) < pair.largest)
      into.not_finite = true;
    const double ratio = distance_in_bounds(value, expected, bound, out.format, hides);
    if ((ratio > 1 || into.scattered) && ratio > into.worst.ratio)
      into.worst = {row, column, value, expected, bound, ratio};
  }
}

/// Adds a row: element by element, in the order of all of them.
void add_row(const JudgedRow& one, const RowTerms& terms, std::int64_t columns, std::int64_t row, Recomputed& into) {
  into.elements += one.judged.elements;
  into.explained += one.judged.explained - (one.scattered ? one.judged.measured_explained : 0);
  into.open += one.open;
  ++into.rows;
  if (one.worst.ratio > into.worst.ratio) into.worst = one.worst;
  if (one.judged.explained < one.judged.elements || one.scattered) into.bad_rows.push_back(row);
  if (one.scattered) into.scattered.push_back({row, one.judged.measured, one.mean_square()});
  if (one.not_finite) into.not_finite.push_back(row);
  if (!one.judged.terms) return;
  double bounds = into.bounds;
  double distance = into.distance;
  double squares = into.squares;
  double within = into.squares_within;
  for (std::int64_t column = 0; column < columns; ++column) {
    bounds += terms.bounds[column];
    distance += terms.distance[column];
    squares += terms.squares[column];
    within += terms.squares[column] <= 1 ? terms.squares[column] : 0;
  }
  into.bounds = bounds;
  into.distance = distance;
  into.squares = squares;
  into.squares_within = within;
}

}  // namespace

void Recomputer::compare(const Prediction& prediction, const Tensor& out, std::int64_t first, Recomputed& into) {
  const std::int64_t columns = prediction.columns;
  const auto stored = values_.stored_rows(out, first, prediction.rows);
  if (!stored) return;
  const bool of_steps = out.axis == Axis::rows || out.axis == Axis::live || out.axis == Axis::ends;
  std::vector<char> live(static_cast<std::size_t>(prediction.rows), 1);
  for (std::int64_t row = 0; of_steps && row < prediction.rows; ++row)
    live[static_cast<std::size_t>(row)] = facts_.live(out, first + row) ? 1 : 0;
  const double largest = double{info(out.format).max_finite};
  RowPair whole{.expected = prediction.value.data(), .bound = prediction.bound.data(), .columns = columns};
  whole.lowest = out.format == Format::int8 ? -128 : -largest;  // asymmetric codes take all
  whole.largest = largest;
  whole.hidden = may_hide(out.role) ? kHiddenScore : std::numeric_limits<double>::quiet_NaN();
  whole.farthest = kFarthest;
  const std::size_t row_bytes = static_cast<std::size_t>(columns) * info(out.format).storage_bytes();
  const auto width = static_cast<std::size_t>((columns + kColumnsAtOnce - 1) / kColumnsAtOnce * kColumnsAtOnce);
  const auto judge = [&](std::int64_t begin, std::int64_t end, Rows& part) {
    part.actual.resize(static_cast<std::size_t>(columns));
    part.terms.resize(3 * static_cast<std::size_t>(end - begin) * width);
    part.rows.assign(static_cast<std::size_t>(end - begin), {});
    for (std::int64_t row = begin; row < end; ++row) {
      const auto at = static_cast<std::size_t>(row - begin);
      decode(out.format, stored->bytes.subspan(static_cast<std::size_t>(row) * row_bytes), part.actual);
      RowPair pair = whole;
      pair.actual = part.actual.data();
      pair.expected += row * columns;
      pair.bound += row * columns;
      if (!prediction.deviation.empty()) pair.deviation = prediction.deviation.data() + row * columns;
      JudgedRow& one = part.rows[at];
      element_loops().compare(pair, part.terms_of(at, width), one.judged);
      one.scattered = one.judged.measured > 0 && one.ratio() > 1;
      if (one.judged.elements == columns && one.judged.explained == columns && !one.scattered) continue;
      judge_elements(pair, out, first + row, live[static_cast<std::size_t>(row)] != 0, one);
      if (!one.scattered) continue;
      one.worst.ratio = std::max(one.worst.ratio, one.ratio());
      one.judged.largest = std::max(one.judged.largest, one.ratio());
    }
  };
  values_.in_order<Rows>(prediction.rows, columns, judge, [&](std::int64_t begin, std::int64_t end, Rows& part) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto at = static_cast<std::size_t>(row - begin);
      const JudgedRow& one = part.rows[at];
      add_row(one, part.terms_of(at, width), columns, first + row, into);
      if (!options_.distances) continue;
      const bool any = one.judged.elements > 0;
      into.distances.push_back(
          {first + row, any ? static_cast<float>(one.judged.largest) : std::numeric_limits<float>::quiet_NaN()});
    }
  });
}

}  // namespace nanscope
