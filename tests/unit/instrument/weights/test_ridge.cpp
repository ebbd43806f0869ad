#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "instrument/weights/random.h"
#include "instrument/weights/ridge.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

struct Problem {
  std::int64_t n;
  std::int64_t d;
  std::int64_t classes;
  std::vector<float> features;
  std::vector<std::int32_t> targets;
};

Problem random_problem(std::int64_t n, std::int64_t d, std::int64_t classes) {
  Problem problem{n, d, classes, std::vector<float>(static_cast<std::size_t>(n * d)), {}};
  fill_gaussian(problem.features, 5, "features", 1.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    problem.targets.push_back(static_cast<std::int32_t>(random_bits(5, 1, static_cast<std::uint64_t>(i)) %
                                                        static_cast<std::uint32_t>(classes)));
  }
  return problem;
}

/// (X'X + lambda I) W - X'Y by the definition, in long double, row by row of X.
double worst_residual(const Problem& problem, double lambda, const std::vector<float>& w) {
  const auto n = static_cast<std::size_t>(problem.n);
  const auto d = static_cast<std::size_t>(problem.d);
  const auto v = static_cast<std::size_t>(problem.classes);
  std::vector<long double> residual(d * v);
  for (std::size_t i = 0; i < d * v; ++i) residual[i] = static_cast<long double>(lambda) * w[i];
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t c = 0; c < v; ++c) {
      long double score = problem.targets[row] == static_cast<std::int32_t>(c) ? -1.0L : 0.0L;
      for (std::size_t i = 0; i < d; ++i)
        score += static_cast<long double>(problem.features[row * d + i]) * w[i * v + c];
      for (std::size_t i = 0; i < d; ++i) residual[i * v + c] += score * problem.features[row * d + i];
    }
  }
  long double worst = 0;
  for (const long double r : residual) worst = std::max(worst, std::abs(r));
  return static_cast<double>(worst);
}

TEST(Ridge, SolvesASmallProblemByHand) {
  // X = [1; 2], classes 0 and 1, lambda 1: (1 + 4 + 1) w = [1, 2].
  const auto w = ridge_classes(std::vector<float>{1, 2}, 1, std::vector<std::int32_t>{0, 1}, 2, 1.0);
  ASSERT_TRUE(w.has_value());
  EXPECT_EQ(*w, (std::vector<float>{static_cast<float>(1.0 / 6), static_cast<float>(2.0 / 6)}));
}

TEST(Ridge, SatisfiesTheNormalEquations) {
  for (const double lambda : {1e-3, 1.0, 100.0}) {
    const Problem problem = random_problem(120, 33, 9);
    const auto w = ridge_classes(problem.features, problem.d, problem.targets, problem.classes, lambda);
    ASSERT_TRUE(w.has_value()) << w.error().message;
    // W is rounded to f32: half an ulp of about 0.05 times the norm of the matrix's rows (about 300).
    EXPECT_LT(worst_residual(problem, lambda, *w), 1e-6) << lambda;
  }
}

TEST(Ridge, SolvesWithFewerRowsThanDimensions) {
  const Problem problem = random_problem(20, 48, 5);
  const auto w = ridge_classes(problem.features, problem.d, problem.targets, problem.classes, 0.1);
  ASSERT_TRUE(w.has_value()) << w.error().message;
  EXPECT_LT(worst_residual(problem, 0.1, *w), 1e-5);
}

/// Pins the bits: another compiler, processor or build must fit the same head.
TEST(Ridge, HasTheSameBitsEverywhere) {
  const Problem problem = random_problem(300, 64, 32);
  const auto w = ridge_classes(problem.features, problem.d, problem.targets, problem.classes, 0.5);
  ASSERT_TRUE(w.has_value());
  std::string bytes;
  for (const float value : *w) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>((std::bit_cast<std::uint32_t>(value) >> shift) & 0xFF);
    }
  }
  EXPECT_EQ(stream_of(bytes), 0x0a8eb06da583d2eaU);
}

TEST(Ridge, RefusesWhatItCannotSolve) {
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<std::int32_t> y = {0, 1};
  const auto message = [](const Result<std::vector<float>>& result) { return result ? "" : result.error().message; };
  EXPECT_THAT(message(ridge_classes(x, 3, y, 2, 1)), HasSubstr("4 features for 2 rows of 3"));
  EXPECT_THAT(message(ridge_classes(x, 2, y, 1, 1)), HasSubstr("class 1 in row 1, expected less than 1"));
  EXPECT_THAT(message(ridge_classes(x, 2, y, 2, 0)), HasSubstr("lambda"));
  EXPECT_THAT(message(ridge_classes(x, 2, y, 2, std::nan(""))), HasSubstr("lambda"));
  EXPECT_THAT(message(ridge_classes(x, 0, y, 2, 1)), HasSubstr("must be positive"));
  const std::vector<float> bad = {1, 2, std::numeric_limits<float>::infinity(), 4};
  EXPECT_THAT(message(ridge_classes(bad, 2, y, 2, 1)), HasSubstr("feature [1,0] is not finite"));
}

TEST(Cholesky, RefusesAnIndefiniteMatrix) {
  std::vector<double> matrix = {1, 0, 2, 1};
  const auto status = cholesky(matrix, 2);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "cholesky: not positive definite at row 1");
}

}  // namespace
}  // namespace nanscope
