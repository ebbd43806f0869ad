#include "instrument/spectral/concentration.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nanscope {
namespace {

struct Row {
  const char* name;
  TailShape shape;
  double delta, gamma, alpha;
};
/// oracle.py.
constexpr Row kRows[] = {
    {"gpt2-xl", {1600, 64, 1200, 1024}, 1e-6, 2.98525367629, 0.0734613249743},
    {"mistral-7b", {4096, 128, 1024, 1024}, 1e-6, 2.25761539028, 0.0352138462712},
    {"llama-2-13b", {5120, 128, 1600, 1024}, 1e-6, 2.27010605989, 0.0284234781663},
    {"llama-2-70b", {8192, 128, 5120, 1024}, 1e-6, 2.30241024556, 0.0181738940171},
    {"small", {64, 16, 8, 33}, 1e-3, 4.04445267854, 0.740766141304},
};

TEST(Concentration, IsWhatAnIndependentSolverFinds) {
  for (const Row& row : kRows) {
    EXPECT_NEAR(typicality(row.shape, row.delta), row.gamma, 1e-10 * row.gamma) << row.name;
    EXPECT_NEAR(smallest_alpha(row.shape, row.delta), row.alpha, 1e-10 * row.alpha) << row.name;
  }
}

TEST(Concentration, IsWhatThePaperPrints) {
  for (const PublishedShape& model : published_shapes()) {
    EXPECT_NEAR(typicality(model.shape, 1e-6) / model.gamma, 1, 0.01) << model.name;
    // Printed with two digits: 0.0182 as 0.018, 0.07346 as 0.074.
    EXPECT_LT(std::abs(smallest_alpha(model.shape, 1e-6) - model.alpha_min), 0.00055) << model.name;
    EXPECT_EQ(model.layers * model.heads, model.shape.heads);
  }
}

TEST(Concentration, ChanceIsAtMostDeltaAtTheSmallestAlphaAndOneWithoutAny) {
  for (const Row& row : kRows) {
    EXPECT_LE(overflow_chance(row.shape, row.alpha), row.delta * (1 + 1e-9)) << row.name;
    EXPECT_GT(overflow_chance(row.shape, row.alpha), row.delta * 1e-6) << row.name;
    EXPECT_EQ(overflow_chance(row.shape, 1e-4), 1) << row.name;
  }
}

}  // namespace
}  // namespace nanscope
