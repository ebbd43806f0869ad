#include "instrument/spectral/score_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace nanscope {
namespace {

std::vector<double> scales(std::string_view name, const ScorePolicySettings& settings,
                           const std::vector<double>& absmax) {
  const auto policy = find_score_policy(name)->make(settings);
  std::vector<double> chosen;
  for (const double one : absmax) {
    chosen.push_back(policy->scale(one));
    policy->seen(one);
  }
  return chosen;
}

/// A training run whose weights grow four times at step 10, 8 heads of 32, computed in NumPy: of steps 0, 1, 9, 10 and
/// 11 scores and scales are known, between them the largest score that the scale at 9 tells.
TEST(ScorePolicy, DelayedIsThatOfAMeasuredTrace) {
  const std::vector<double> absmax{21.1, 22.7, 21.9, 22.0, 21.6, 21.5, 22.3, 23.87, 21.4, 21.8, 340.7, 344.7};
  const std::vector<double> chosen = scales("delayed", {}, absmax);
  EXPECT_NEAR(chosen[0], 0.00248, 1e-5);
  EXPECT_NEAR(chosen[1], 0.05239, 1e-4);
  EXPECT_NEAR(chosen[9], 0.05920, 1e-5);
  EXPECT_NEAR(chosen[10], 0.05920, 1e-5);
  EXPECT_NEAR(chosen[11], 0.84494, 1e-4);
  EXPECT_GT(absmax[0] / chosen[0], 448);    // load: 8516
  EXPECT_GT(absmax[10] / chosen[10], 448);  // spike: 5755
  EXPECT_LT(absmax[11] / chosen[11], 448);  // one step later it is right again
}

TEST(ScorePolicy, DelayedForgetsWhatIsOlderThanItsHistory) {
  ScorePolicySettings settings;
  settings.history = 2;
  settings.margin = 1;
  const std::vector<double> chosen = scales("delayed", settings, {448, 896, 448, 448, 448});
  EXPECT_EQ(chosen, (std::vector<double>{1 / 448.0, 1, 2, 2, 1}));
}

TEST(ScorePolicy, MonotonicOnlyGrows) {
  ScorePolicySettings settings;
  settings.margin = 1;
  EXPECT_EQ(scales("monotonic", settings, {448, 896, 224, 224}), (std::vector<double>{1 / 448.0, 1, 2, 2}));
}

TEST(ScorePolicy, CurrentLooksAtTheStepItself) {
  EXPECT_EQ(scales("current", {}, {448, 0, 896}), (std::vector<double>{1, 1, 2}));
}

TEST(ScorePolicy, GeometryDoesNotLookAtScores) {
  ScorePolicySettings settings;
  settings.calibrated = 358.4 * 3;
  const std::vector<double> chosen = scales("geometry", settings, {1, 1e6});
  EXPECT_DOUBLE_EQ(chosen[0], 3);
  EXPECT_EQ(chosen[0], chosen[1]);
}

TEST(ScorePolicy, AutoAlphaIsGeometryUntilItsBurnInEndsAndWhatItSawFromThenOn) {
  ScorePolicySettings settings;
  settings.worst_case = 35840;
  settings.calibrated = 3584;
  settings.burn_in = 2;
  const std::vector<double> chosen = scales("auto_alpha", settings, {30, 35.84, 20, 1e6});
  EXPECT_DOUBLE_EQ(chosen[0], 10);
  EXPECT_DOUBLE_EQ(chosen[1], 10);
  EXPECT_DOUBLE_EQ(chosen[2], 0.1);
  EXPECT_DOUBLE_EQ(chosen[3], 0.1);
}

/// numpy.quantile([1, 2, 4, 8], q) with its default method: 1, 2, 3, 5, 7.9988, 8.
TEST(ScorePolicy, QuantilesLieBetweenTwoValues) {
  const std::vector<double> values = {8, 1, 4, 2};
  EXPECT_EQ(quantile_of(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile_of(values, 1.0 / 3), 2);
  EXPECT_DOUBLE_EQ(quantile_of(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile_of(values, 0.75), 5);
  EXPECT_NEAR(quantile_of(values, 0.9999), 7.9988, 1e-12);
  EXPECT_EQ(quantile_of(values, 1), 8);
  EXPECT_EQ(quantile_of({}, 0.5), 0);
}

/// Slacks 1, 2, 4 and 8 thousandths: half of them is 3, times 2 and the worst case of 1000, over 0.8 x 448.
TEST(ScorePolicy, AutoAlphaTakesAQuantileAndAFactor) {
  ScorePolicySettings settings;
  settings.worst_case = 1000;
  settings.calibrated = 358.4;
  settings.burn_in = 4;
  settings.quantile = 0.5;
  settings.kappa = 2;
  const std::vector<double> chosen = scales("auto_alpha", settings, {8, 1, 4, 2, 1e6});
  EXPECT_DOUBLE_EQ(chosen[3], 1);
  EXPECT_DOUBLE_EQ(chosen[4], 6 / 358.4);
}

TEST(ScorePolicy, GoesOnFromItsMemory) {
  const std::vector<double> absmax{21, 30, NAN, 25, 19, 22, 40, 18};
  for (const ScorePolicyEntry& entry : score_policies()) {
    ScorePolicySettings settings{.history = 3, .worst_case = 100, .calibrated = 50, .burn_in = 4};
    const auto whole = entry.make(settings);
    const auto first = entry.make(settings);
    for (std::size_t i = 0; i < 5; ++i) {
      whole->seen(absmax[i]);
      first->seen(absmax[i]);
    }
    const auto second = entry.make(settings);
    ASSERT_TRUE(second->restore(first->memory())) << entry.name;
    for (std::size_t i = 5; i < absmax.size(); ++i) {
      const double expected = whole->scale(absmax[i]);
      const double made = second->scale(absmax[i]);
      EXPECT_TRUE(made == expected || (std::isnan(made) && std::isnan(expected))) << entry.name << ", step " << i;
      whole->seen(absmax[i]);
      second->seen(absmax[i]);
    }
    EXPECT_FALSE(second->restore(std::vector<double>(5, 1.0))) << entry.name << " remembers 4 at most";
  }
}

TEST(ScorePolicy, ANanInTheHistoryIsOneInTheScale) {
  const std::vector<double> chosen = scales("delayed", {}, {20, NAN, 20});
  EXPECT_TRUE(std::isnan(chosen[2]));
}

}  // namespace
}  // namespace nanscope
