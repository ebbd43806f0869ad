#pragma once
/// Gradients against central finite differences of a forward op written in double precision, and the formula of the op,
/// in double precision too, against the same. The largest errors of each op are printed at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels::test {

using Doubles = std::vector<double>;

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

inline Doubles wide(const Floats& matrix) { return {matrix.data.begin(), matrix.data.end()}; }

/// Part of a row.
inline Doubles wide(const Floats& matrix, std::int64_t row, std::int64_t first, std::int64_t count) {
  const auto begin = matrix.data.begin() + row * matrix.columns + first;
  return {begin, begin + count};
}

/// Every step-th derivative of the loss; differences of 2^-16 err by 1e-10 of the loss's third derivative.
template <class Loss>
Doubles central_differences(Doubles at, const Loss& loss, std::size_t step = 1) {
  constexpr double kHalf = 0x1p-17;
  Doubles slopes;
  for (std::size_t i = 0; i < at.size(); i += step) {
    const double x = at[i];
    at[i] = x + kHalf;
    const double above = loss(at);
    at[i] = x - kHalf;
    slopes.push_back((above - loss(at)) / (2 * kHalf));
    at[i] = x;
  }
  return slopes;
}

/// How many elements to pass over, so that all takes no more than about a second.
inline std::size_t step_for(std::int64_t elements, std::int64_t cost_of_loss) {
  return static_cast<std::size_t>(1 + elements * cost_of_loss / 60'000'000);
}

template <class Values>
Doubles every(const Values& values, std::size_t step) {
  Doubles some;
  for (std::size_t i = 0; i < values.size(); i += step) some.push_back(static_cast<double>(values[i]));
  return some;
}

/// Norm of the difference by the norm of what is expected; 0 where both are 0.
inline double relative_error(const Doubles& found, const Doubles& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

class GradientTest : public testing::Test {
 protected:
  struct Largest {
    double op = 0;
    double formula = 0;
    int cases = 0;
  };

  /// found: of the op, in f32; formula: of the same elements, in double precision.
  static void expect_gradient(const std::string& op, const std::string& label, const Doubles& differences,
                              const Doubles& formula, const Doubles& found) {
    const double of_op = relative_error(found, differences);
    const double of_formula = relative_error(formula, differences);
    EXPECT_LE(of_op, 1e-6) << op << ", " << label;
    EXPECT_LE(of_formula, 1e-7) << op << ", " << label;
    Largest& largest = largest_[op];
    largest.op = std::max(largest.op, of_op);
    largest.formula = std::max(largest.formula, of_formula);
    ++largest.cases;
  }

  static void TearDownTestSuite() {
    for (const auto& [op, largest] : largest_) {
      fmt::print("{:<44} {:>3} cases  op {:.1e}  formula {:.1e}\n", op, largest.cases, largest.op, largest.formula);
    }
    largest_.clear();
  }

 private:
  static inline std::map<std::string, Largest> largest_;
};

}  // namespace nanscope::kernels::test
