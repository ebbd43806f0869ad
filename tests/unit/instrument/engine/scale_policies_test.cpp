#include "instrument/engine/scale_policies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nanscope {
namespace {

/// Magnitudes that a test makes up; counts how often they are asked for.
class Rows final : public RowMagnitudes {
 public:
  explicit Rows(std::vector<float> rows) : rows_(std::move(rows)) {}
  Result<float> tensor() override {
    ++asked;
    float largest = 0;
    for (const float row : rows_) largest = std::max(largest, row);
    return largest;
  }
  Result<std::span<const float>> rows() override {
    ++asked;
    return rows_;
  }
  int asked = 0;

 private:
  std::vector<float> rows_;
};

std::unique_ptr<ScalePolicy> make(std::string_view name, const KvConfig& config, KvTarget target) {
  return find_scale_policy(name)->make(config, target);
}

ScaleContext context(std::int64_t request, std::int64_t step, std::int64_t tokens) {
  return {.layer = 0, .target = KvTarget::k, .request = request, .step = step, .tokens = tokens};
}

TEST(ScalePolicies, LockedComputesOnceFromTheFirstRows) {
  const KvConfig config;
  const auto policy = make("locked", config, KvTarget::k);
  Rows first({1.0F, 5.0F});
  const ScaleChoice locked = policy->choose(context(0, 1, 12), first).value();
  EXPECT_EQ(locked.scales, std::vector<float>{0.025F});  // 5 / 200
  EXPECT_EQ(448.0F * locked.scales[0], 11.2F);           // where it clips: reference 1's figure
  EXPECT_EQ(locked.origin.source, ScaleSource::calibrated);
  EXPECT_EQ(locked.origin.request, 0);
  EXPECT_EQ(locked.origin.step, 1);
  EXPECT_EQ(locked.origin.tokens, 12);
  EXPECT_EQ(locked.origin.absmax, 5.0);
  EXPECT_TRUE(locked.origin.locked);
  Rows later({15.0F});
  const ScaleChoice kept = policy->choose(context(2, 9, 30), later).value();
  EXPECT_EQ(kept.scales, std::vector<float>{0.025F});
  EXPECT_EQ(kept.origin.step, 1);
  EXPECT_EQ(later.asked, 0);
}

TEST(ScalePolicies, LockedUsesItsOwnDivisorForV) {
  Rows rows({5.0F});
  EXPECT_EQ(make("locked", KvConfig{}, KvTarget::v)->choose(context(0, 1, 1), rows)->scales, std::vector<float>{0.05F});
}

TEST(ScalePolicies, LockedOnZerosGivesScaleZero) {
  Rows rows({0.0F, 0.0F});
  EXPECT_EQ(make("locked", KvConfig{}, KvTarget::k)->choose(context(-1, 1, 2), rows)->scales, std::vector<float>{0.0F});
}

TEST(ScalePolicies, PerRequestStartsAnewWithEachRequest) {
  const auto policy = make("per_request", KvConfig{}, KvTarget::k);
  Rows quiet({5.0F});
  Rows loud({20.0F});
  EXPECT_EQ(policy->choose(context(0, 1, 4), quiet)->scales[0], 0.025F);
  EXPECT_EQ(policy->choose(context(0, 2, 1), loud)->scales[0], 0.025F);
  const ScaleChoice next = policy->choose(context(1, 3, 4), loud).value();
  EXPECT_EQ(next.scales[0], 0.1F);  // 20 / 200
  EXPECT_EQ(next.origin.request, 1);
  EXPECT_FALSE(next.origin.locked);
}

TEST(ScalePolicies, PerTokenUsesTheFormatsLargestValue) {
  KvConfig config;
  config.format = Format::e4m3;
  Rows rows({448.0F, 11.2F, 0.0F});
  const ScaleChoice choice = make("per_token", config, KvTarget::k)->choose(context(0, 1, 3), rows).value();
  EXPECT_EQ(choice.scales, (std::vector<float>{1.0F, 0.025F, 1.0F}));  // 11.2 / 448; a row of zeros keeps 1
  EXPECT_EQ(choice.origin.absmax, 448.0);
  config.format = Format::int8;
  Rows wide({254.0F});
  EXPECT_EQ(make("per_token", config, KvTarget::k)->choose(context(0, 1, 1), wide)->scales[0], 2.0F);  // 254 / 127
}

TEST(ScalePolicies, DelayedFollowsTheStepsBefore) {
  KvConfig config;
  config.format = Format::e4m3;
  config.history = 2;
  const auto policy = make("delayed", config, KvTarget::k);
  const auto scale = [&](std::int64_t step, float absmax) {
    Rows rows({absmax});
    return policy->choose(context(0, step, 4), rows).value();
  };
  const ScaleChoice start = scale(1, 448.0F);
  EXPECT_EQ(start.scales, std::vector<float>{1.0F});
  EXPECT_EQ(start.origin.source, ScaleSource::fixed);
  const ScaleChoice second = scale(2, 896.0F);
  EXPECT_EQ(second.scales, std::vector<float>{1.0F});  // 448 / 448
  EXPECT_EQ(second.origin.source, ScaleSource::calibrated);
  EXPECT_EQ(second.origin.step, 1);
  EXPECT_FALSE(second.origin.locked);
  EXPECT_EQ(scale(3, 224.0F).scales, std::vector<float>{2.0F});  // 896 / 448, of step 2
  const ScaleChoice fourth = scale(4, 224.0F);
  EXPECT_EQ(fourth.scales, std::vector<float>{2.0F});
  EXPECT_EQ(fourth.origin.step, 2);
  EXPECT_EQ(scale(5, 224.0F).scales, std::vector<float>{0.5F});  // 896 is out of the history of two
}

TEST(ScalePolicies, DelayedKeepsOneOverAHistoryOfZeros) {
  const auto policy = make("delayed", KvConfig{}, KvTarget::k);
  Rows zeros({0.0F});
  ASSERT_TRUE(policy->choose(context(0, 1, 4), zeros));
  EXPECT_EQ(policy->choose(context(0, 2, 4), zeros)->scales, std::vector<float>{1.0F});
}

/// The magnitudes of a step that met a NaN are NaN, as torch.amax has them.
class Bad final : public RowMagnitudes {
 public:
  explicit Bad(std::vector<float> rows) : rows_(std::move(rows)) {}
  Result<float> tensor() override { return NAN; }
  Result<std::span<const float>> rows() override { return rows_; }

 private:
  std::vector<float> rows_;
};

TEST(ScalePolicies, ANaNInADelayedHistoryCountsWhereverItStands) {
  for (const std::int64_t at : {1, 2, 3}) {
    KvConfig config;
    config.history = 3;
    const auto policy = make("delayed", config, KvTarget::k);
    Rows healthy({448.0F});
    Bad bad({});
    for (std::int64_t step = 1; step <= 3; ++step) {
      ASSERT_TRUE(step == at ? policy->choose(context(0, step, 4), bad) : policy->choose(context(0, step, 4), healthy));
    }
    const ScaleChoice choice = policy->choose(context(0, 4, 4), healthy).value();
    EXPECT_TRUE(std::isnan(choice.scales[0])) << "of step " << at;
    EXPECT_EQ(choice.origin.source, ScaleSource::calibrated);
    EXPECT_EQ(choice.origin.step, at);
  }
}

TEST(ScalePolicies, ANaNOfOneTokenIsTheLargestOfAll) {
  for (const std::size_t at : {0U, 1U, 2U}) {
    std::vector<float> magnitudes{448.0F, 11.2F, 4.0F};
    magnitudes[at] = NAN;
    Bad rows(magnitudes);
    const ScaleChoice choice = make("per_token", KvConfig{}, KvTarget::k)->choose(context(0, 1, 3), rows).value();
    EXPECT_TRUE(std::isnan(choice.origin.absmax)) << at;
    EXPECT_TRUE(std::isnan(choice.scales[at])) << at;
  }
}

TEST(ScalePolicies, StaticTakesWhatIsConfiguredAsItIs) {
  KvConfig config;
  config.scale_k = 0.5F;
  config.scale_v = -INFINITY;
  Rows rows({3.0F});
  const ScaleChoice k = make("static", config, KvTarget::k)->choose(context(0, 1, 1), rows).value();
  EXPECT_EQ(k.scales[0], 0.5F);
  EXPECT_EQ(k.origin.source, ScaleSource::fixed);
  EXPECT_TRUE(k.origin.locked);
  EXPECT_EQ(make("static", config, KvTarget::v)->choose(context(0, 1, 1), rows)->scales[0], -INFINITY);
  EXPECT_EQ(rows.asked, 0);
}

TEST(ScalePolicies, AutoIsNoQuantization) {
  Rows rows({3.0F});
  const ScaleChoice choice = make("unit_scale", KvConfig{}, KvTarget::k)->choose(context(0, 1, 1), rows).value();
  EXPECT_EQ(choice.scales[0], 1.0F);
  EXPECT_EQ(choice.origin.source, ScaleSource::none);
  EXPECT_FALSE(choice.origin.locked);
}

TEST(ScalePolicies, HeadroomIsTheLargestFiniteValueOverTheLargestStored) {
  EXPECT_DOUBLE_EQ(headroom(Format::e4m3, 0.025, 11.2), 1.0);
  EXPECT_DOUBLE_EQ(headroom(Format::e4m3, 0.025, 5.0), 2.24);
  EXPECT_NEAR(headroom(Format::e4m3, 0.025, 15.0), 0.74667, 1e-5);
  EXPECT_DOUBLE_EQ(headroom(Format::int8, 1, 254), 0.5);
  EXPECT_EQ(headroom(Format::e4m3, 1, 0), INFINITY);
}

TEST(ScalePolicies, OnlyChangingScalesAreKeptPerSlot) {
  for (const ScalePolicyEntry& entry : scale_policies()) {
    EXPECT_EQ(entry.per_slot, entry.name == "per_request" || entry.name == "per_step" || entry.name == "per_token" ||
                                  entry.name == "delayed")
        << entry.name;
    EXPECT_EQ(find_scale_policy(entry.name), &entry);
  }
  EXPECT_EQ(find_scale_policy("none"), nullptr);
  EXPECT_EQ(scale_policy_names(), "unit_scale|locked|static|per_request|delayed|per_step|per_token");
}

}  // namespace
}  // namespace nanscope
