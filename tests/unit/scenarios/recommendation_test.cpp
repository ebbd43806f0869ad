#include "scenarios/recommendation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace nanscope::scenarios {
namespace {

Accuracy error_of(double rms) {
  return {.requests = 2, .tokens = 20, .max_error = 4 * rms, .rms_error = rms, .top1_agreement = 1};
}

Outcome outcome(const std::string& setting, Effect effect, double bytes, double rms) {
  Outcome one;
  one.change = {{setting}};
  one.effect = effect;
  one.kv_bytes_per_token = bytes;
  one.accuracy = error_of(rms);
  one.recorded_accuracy = error_of(rms);
  return one;
}

/// Of a cache of 1000 B a token and an error of 0.1.
Counterfactuals recorded() {
  Counterfactuals all;
  all.baseline.faults = {"kv-scale-locked"};
  all.baseline.kv_bytes_per_token = 1000;
  all.baseline.recorded_accuracy = error_of(0.1);
  all.root_class = "kv-scale-locked";
  return all;
}

std::string change(const std::optional<Recommendation>& recommendation) {
  return recommendation ? recommendation->outcome->change.text() : "none";
}

TEST(Recommend, TheCheapestThatRemovesTheCauseAndIsAsAccurate) {
  Counterfactuals all = recorded();
  all.singles = {outcome("kv.format=f32", Effect::removes_cause, 4000, 0),
                 outcome("kv.format=bf16", Effect::removes_cause, 2000, 0.01),
                 outcome("kv.policy=per_token", Effect::removes_cause, 1020, 0.1),
                 outcome("kv.format=e5m2", Effect::removes_cause, 1000, 0.4),
                 outcome("inner_norm.clamp=true", Effect::removes_nan, 1000, 0.05)};
  const auto best = recommend(all);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(change(best), "kv.policy=per_token");
  EXPECT_EQ(best->basis, Basis::accurate);
  EXPECT_EQ(best->removing, 4U);
  EXPECT_EQ(best->accurate, 3U);
}

TEST(Recommend, ActivationsTokensAndSettingsCostToo) {
  Counterfactuals all = recorded();
  Outcome wide = outcome("activation.format=f32", Effect::removes_cause, 1000, 0);
  wide.activation_bits = 32;
  Outcome narrow = outcome("activation.format=bf16", Effect::removes_cause, 1000, 0.1);
  narrow.activation_bits = 16;
  all.singles = {wide, narrow};
  EXPECT_EQ(change(recommend(all)), "activation.format=bf16");
  Outcome slow = outcome("kv.prefix_cache=false", Effect::removes_cause, 1000, 0.1);
  slow.tokens = 90;
  Outcome quick = outcome("kv.scrub=true", Effect::removes_cause, 1000, 0.1);
  quick.tokens = 60;
  all.singles = {slow, quick};
  EXPECT_EQ(change(recommend(all)), "kv.scrub=true");
  Outcome three = outcome("kv.policy=static", Effect::removes_cause, 1000, 0.01);
  three.change.settings.push_back("kv.scale_k=1");
  all.singles = {three, outcome("kv.policy=unit_scale", Effect::removes_cause, 1000, 0.1)};
  EXPECT_EQ(change(recommend(all)), "kv.policy=unit_scale");
}

TEST(Recommend, WhereAllCostAccuracyTheLeast) {
  Counterfactuals all = recorded();
  all.singles = {outcome("kv.format=e5m2", Effect::removes_cause, 1000, 0.9),
                 outcome("kv.policy=unit_scale", Effect::removes_cause, 1010, 0.2)};
  const auto best = recommend(all);
  EXPECT_EQ(change(best), "kv.policy=unit_scale");
  EXPECT_EQ(best->basis, Basis::less_accurate);
}

TEST(Recommend, ATopTokenThatIsLostIsWorseToo) {
  Counterfactuals all = recorded();
  Outcome other = outcome("kv.policy=unit_scale", Effect::removes_cause, 1000, 0.1);
  other.recorded_accuracy->top1_agreement = 0.9;
  all.singles = {other, outcome("kv.format=bf16", Effect::removes_cause, 2000, 0.1)};
  EXPECT_EQ(change(recommend(all)), "kv.format=bf16");
}

TEST(Recommend, WithoutAHealthyRequestTheCheapest) {
  Counterfactuals all = recorded();
  all.baseline.recorded_accuracy.reset();
  all.singles = {outcome("kv.format=bf16", Effect::removes_cause, 2000, 0.01),
                 outcome("kv.policy=unit_scale", Effect::removes_cause, 1000, 0.2)};
  const auto best = recommend(all);
  EXPECT_EQ(change(best), "kv.policy=unit_scale");
  EXPECT_EQ(best->basis, Basis::unmeasured);
  // Less memory by a narrower format is paid with an accuracy that nothing measures.
  all.singles.push_back(outcome("kv.format=int8", Effect::removes_cause, 500, 0.1));
  all.singles.push_back(outcome("activation.format=f16", Effect::removes_cause, 900, 0.1));
  all.baseline.activation_bits = all.singles[0].activation_bits = all.singles[1].activation_bits = 32;
  all.singles[3].activation_bits = 16;
  EXPECT_EQ(change(recommend(all)), "kv.policy=unit_scale");
}

TEST(Recommend, WhereNothingRemovesTheCauseWhatRemovesTheNan) {
  Counterfactuals all = recorded();
  all.singles = {outcome("inner_norm.clamp=true", Effect::removes_nan, 1000, 0.2),
                 outcome("kv.scrub=true", Effect::limits_spread, 900, 0.1)};
  const auto best = recommend(all);
  EXPECT_EQ(change(best), "inner_norm.clamp=true");
  EXPECT_EQ(best->basis, Basis::symptom_alone);
  all.singles.erase(all.singles.begin());
  EXPECT_EQ(change(recommend(all)), "none");
}

TEST(Recommend, PairsAndWhatCouldNotBeRun) {
  Counterfactuals all = recorded();
  Outcome refused = outcome("kv.format=f32", Effect::removes_cause, 0, 0);
  refused.error = "refused";
  all.singles = {refused};
  all.pairs = {outcome("kv.scrub=true", Effect::removes_cause, 1000, 0.1)};
  EXPECT_EQ(change(recommend(all)), "kv.scrub=true");
}

}  // namespace
}  // namespace nanscope::scenarios
