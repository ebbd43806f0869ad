// The router and the weighted sum of experts: chosen by sorting, weighed in f32 as stated, and the cancellation.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/ops/expert_mix.h"
#include "kernels/ops/route.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;
using test::Indices;
using test::kNan;

struct Routed {
  Floats weights;
  Indices ids;
};

Routed route(Floats logits, Floats bias, std::int64_t chosen, RouterValue value = RouterValue::gate, float eps = 0) {
  Routed routed{{logits.rows, chosen}, {logits.rows, chosen}};
  RouteArgs args;
  args.logits = logits.view();
  args.bias = bias.view();
  args.weights = routed.weights.view();
  args.ids = routed.ids.view();
  args.value = value;
  args.eps = eps;
  test::launch(args);
  return routed;
}

float gate_of(float logit) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logit)))); }

TEST(Route, ChoosesBySortingAndWeighsByTheGate) {
  for (const std::int64_t experts : {3, 32, 33, 100}) {
    const Floats logits = test::random_floats(7, experts, 5, 4.0F);
    const Floats bias = test::random_floats(1, experts, 6, 2.0F);
    const Routed found = route(logits, bias, 3);
    for (std::int64_t t = 0; t < 7; ++t) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return gate_of(logits.at(t, a)) + bias.at(0, a) > gate_of(logits.at(t, b)) + bias.at(0, b);
      });
      float total = 0;
      for (std::size_t j = 0; j < 3; ++j) total += gate_of(logits.at(t, order[j]));
      for (std::int64_t j = 0; j < 3; ++j) {
        const std::int64_t expert = order[static_cast<std::size_t>(j)];
        EXPECT_EQ(found.ids.at(t, j), expert) << experts;
        EXPECT_NEAR(found.weights.at(t, j), gate_of(logits.at(t, expert)) / total, 2e-7F);
      }
    }
  }
}

/// DeepSeek-V3's two best of a group and DeepSeek-V2's best one, by sorting.
TEST(Route, ChoosesAmongTheBestGroups) {
  for (const GroupScore by : {GroupScore::top_two, GroupScore::best}) {
    for (const std::int64_t size : {2, 5, 32, 33}) {
      const std::int64_t groups = 6;
      Floats logits = test::random_floats(9, groups * size, 7, 4.0F);
      Floats bias = test::random_floats(1, groups * size, 8, 2.0F);
      Routed found{{9, 4}, {9, 4}};
      RouteArgs args;
      args.logits = logits.view();
      args.bias = bias.view();
      args.weights = found.weights.view();
      args.ids = found.ids.view();
      args.groups = groups;
      args.top_groups = 2;
      args.group_score = by;
      test::launch(args);
      for (std::int64_t t = 0; t < 9; ++t) {
        const auto choice = [&](std::int64_t e) { return gate_of(logits.at(t, e)) + bias.at(0, e); };
        std::vector<float> scores;
        for (std::int64_t group = 0; group < groups; ++group) {
          std::vector<float> own;
          for (std::int64_t e = 0; e < size; ++e) own.push_back(choice(group * size + e));
          std::sort(own.rbegin(), own.rend());
          scores.push_back(by == GroupScore::best ? own[0] : own[0] + own[1]);
        }
        std::vector<std::int64_t> best(static_cast<std::size_t>(groups));
        std::iota(best.begin(), best.end(), 0);
        std::stable_sort(best.begin(), best.end(), [&](std::int64_t a, std::int64_t b) {
          return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
        });
        std::vector<std::int64_t> order;
        for (std::int64_t e = 0; e < groups * size; ++e) {
          if (e / size == best[0] || e / size == best[1]) order.push_back(e);
        }
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) { return choice(a) > choice(b); });
        for (std::int64_t j = 0; j < 4; ++j) EXPECT_EQ(found.ids.at(t, j), order[static_cast<std::size_t>(j)]) << size;
      }
    }
  }
}

/// Groups of equal score: the first ones, and all NaN leaves a choice that names experts.
TEST(Route, GroupsThatAreAlikeAreTakenInOrder) {
  for (const float logit : {0.5F, kNan}) {
    Floats logits(1, 12, logit);
    Routed found{{1, 3}, {1, 3}};
    RouteArgs args;
    args.logits = logits.view();
    args.weights = found.weights.view();
    args.ids = found.ids.view();
    args.groups = 4;
    args.top_groups = 1;
    test::launch(args);
    for (const std::int32_t id : found.ids.data) EXPECT_TRUE(id >= 0 && id < 3) << id;
  }
}

TEST(Route, EqualChoicesGoToTheLowestIndex) {
  const Routed found = route(Floats(1, 70, 0.5F), Floats(1, 70, 0.0F), 3);
  EXPECT_EQ(found.ids.data, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(Route, TheBiasTakesSmallGatesAway) {
  const Floats logits(1, 3, {-22.0F, -24.0F, -21.0F});  // gates below 1e-9, half an ulp of 20 is 9.5e-7
  const Floats bias(1, 3, {20.0F, 21.0F, 19.0F});
  const Routed cancelled = route(logits, bias, 2, RouterValue::choice_minus_bias);
  EXPECT_EQ(cancelled.ids.data, (std::vector<std::int32_t>{1, 0}));
  for (const float weight : cancelled.weights.data) EXPECT_TRUE(std::isnan(weight));
  const Routed kept = route(logits, bias, 2);
  EXPECT_NEAR(kept.weights.at(0, 0) + kept.weights.at(0, 1), 1.0F, 1e-6F);
  EXPECT_NEAR(kept.weights.at(0, 0) / kept.weights.at(0, 1), std::exp(-2.0F), 1e-6F);
  const Routed guarded = route(logits, bias, 2, RouterValue::choice_minus_bias, 1e-20F);
  for (const float weight : guarded.weights.data) EXPECT_EQ(weight, 0.0F);
}

TEST(Route, ANanIsChosenLastAndSpoilsItsRow) {
  const Floats logits(1, 3, {1.0F, kNan, 2.0F});
  EXPECT_EQ(route(logits, Floats(1, 3, 0.0F), 2).ids.data, (std::vector<std::int32_t>{2, 0}));
  const Routed all = route(logits, Floats(1, 3, 0.0F), 3);
  EXPECT_EQ(all.ids.data, (std::vector<std::int32_t>{2, 0, 1}));
  for (const float weight : all.weights.data) EXPECT_TRUE(std::isnan(weight));
}

TEST(ExpertMix, IsOneFmaChainOverTheChosen) {
  const std::int64_t tokens = 5;
  const std::int64_t width = 70;
  Floats experts = test::random_floats(4 * tokens, width, 9);
  for (std::int64_t i = 0; i < width; ++i) experts.at(3 * tokens, i) = kNan;  // expert 3 of token 0, whom nobody chose
  Floats weights = test::random_floats(tokens, 2, 10);
  Indices ids(tokens, 2, {2, 0, 1, 3, 3, 1, 0, 1, 2, -1});
  Floats out(tokens, width);
  ExpertMixArgs args;
  args.experts = experts.view();
  args.weights = weights.view();
  args.ids = ids.view();
  args.out = out.view();
  test::launch(args);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      float chain = 0;
      for (std::int64_t j = 0; j < 2; ++j) {
        if (ids.at(t, j) >= 0) chain = std::fma(weights.at(t, j), experts.at(ids.at(t, j) * tokens + t, i), chain);
      }
      ASSERT_EQ(out.at(t, i), chain) << t << " " << i;
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
