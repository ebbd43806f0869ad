#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/numbers/codec.h"
#include "instrument/recompute/arithmetic.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recompute.h"
#include "tests/unit/instrument/diagnosis/reference.h"

/// Ops done again from their inputs, against a reference in double precision that the test writes down itself.
namespace nanscope::testing {

/// A run and an output of it that is to be done again.
struct Case {
  std::unique_ptr<DumpGraph> graph = std::make_unique<DumpGraph>();
  TensorId out = 0;
  Numbers right{0, 0};  ///< what `out` should be, before it is rounded to its format
};

/// Changes the right numbers before they are stored.
using Change = std::function<void(Numbers&)>;
inline void unchanged(Numbers&) {}

/// All ops of a run done again.
class Again {
 public:
  explicit Again(DumpGraph& graph) : graph_(graph), facts_(graph), recomputer_(facts_, arithmetic_) {
    std::vector<StepId> steps;
    for (const Step& step : graph.steps()) steps.push_back(step.id);
    recomputer_.run(steps);
  }
  /// Null when it was not done again.
  const Recomputed* result(TensorId out) const { return recomputer_.result(out); }
  Prediction expected(TensorId out) {
    const Recomputed* made = result(out);
    if (made == nullptr) return {};
    const Tensor& tensor = *graph_.tensor(out);
    return recomputer_.predict(*graph_.maker(tensor), tensor, made->form, 0, tensor.tokens).value_or(Prediction{});
  }
  std::string why_not(TensorId out) const {
    for (const NotRecomputed& one : recomputer_.not_recomputed()) {
      if (one.tensor == out) return one.reason;
    }
    return {};
  }
  bool understood(TensorId out) const { return recomputer_.understood(*graph_.maker(*graph_.tensor(out))); }
  std::vector<Recomputed> alternatives(TensorId out) {
    const Recomputed& made = *result(out);
    const Tensor& tensor = *graph_.tensor(out);
    return recomputer_.alternatives(*graph_.maker(tensor), tensor, made.bad_rows);
  }

 private:
  DumpGraph& graph_;
  PlainArithmetic arithmetic_;
  Facts facts_;
  Recomputer recomputer_;
};

/// The recipe gives the reference's numbers, to what f32 keeps, and the bound is at least the rounding of the format
/// and at most `loose` times it, taken of the largest of the row. `tolerance` is of what the recipe was given: coarser
/// where its inputs are.
inline void expect_right(const Case& made, const std::string& form, double loose = 64, double tolerance = 1e-5) {
  Again again(*made.graph);
  const Recomputed* found = again.result(made.out);
  ASSERT_NE(found, nullptr) << again.why_not(made.out);
  EXPECT_EQ(found->share(), 1.0) << found->worst.row << ' ' << found->worst.channel << ": " << found->worst.actual
                                 << " instead of " << found->worst.expected;
  EXPECT_GT(found->elements, 0);
  if (!form.empty()) {
    EXPECT_EQ(found->form.text, form);
  }
  const Prediction prediction = again.expected(made.out);
  const Format format = made.graph->tensor(made.out)->format;
  for (std::int64_t r = 0; r < made.right.rows; ++r) {
    double largest = 0;
    for (std::int64_t c = 0; c < made.right.columns; ++c) largest = std::max(largest, std::abs(made.right.at(r, c)));
    for (std::int64_t c = 0; c < made.right.columns; ++c) {
      const auto at = static_cast<std::size_t>(r * made.right.columns + c);
      const double bound = double{prediction.bound[at]};
      if (bound < 0) continue;
      EXPECT_NEAR(double{prediction.value[at]}, made.right.at(r, c), tolerance * largest) << r << ' ' << c;
      const double u = std::max(roundoff(format), kF32);
      const auto right = static_cast<float>(made.right.at(r, c));
      const auto kept = double{decode(format, encode(format, right, Overflow::saturate))};
      EXPECT_GE(bound, std::abs(kept - made.right.at(r, c)) - kF32 * std::abs(kept)) << r << ' ' << c;
      EXPECT_LE(bound, loose * u * largest + 1e-6) << r << ' ' << c;
    }
  }
}

/// An element that is off by an eighth of the largest is seen, in its row.
inline void expect_seen(const std::function<Case(const Change&)>& make, std::int64_t row, std::int64_t channel) {
  const Case made = make([&](Numbers& numbers) {
    double largest = 0;
    for (const double one : numbers.v) largest = std::max(largest, std::abs(one));
    numbers.at(row, channel) += largest / 8;
  });
  Again again(*made.graph);
  const Recomputed* found = again.result(made.out);
  ASSERT_NE(found, nullptr) << again.why_not(made.out);
  EXPECT_THAT(found->bad_rows, ::testing::ElementsAre(row));
  EXPECT_EQ(found->worst.row, row);
  EXPECT_EQ(found->worst.channel, channel);
}

/// What explains an output that is wrong throughout.
inline std::string explained_by(const Case& made) {
  Again again(*made.graph);
  if (again.result(made.out) == nullptr) return again.why_not(made.out);
  const std::vector<Recomputed> tried = again.alternatives(made.out);
  return tried.empty() || tried.front().share() < 0.99 ? "nothing" : tried.front().form.text;
}

}  // namespace nanscope::testing
