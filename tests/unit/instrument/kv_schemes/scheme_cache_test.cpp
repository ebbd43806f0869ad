// Caches under schemes, on numbers worked out by hand.
#include "instrument/kv_schemes/scheme_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace nanscope {
namespace {

KvScheme scheme(std::string_view text) { return parse_kv_scheme(text).value(); }

std::vector<float> stored(SchemeCache& cache, std::vector<float> values, std::int64_t position = 0,
                          std::int64_t request = 0) {
  const KvRows rows{values, request, position};
  const Status status = cache.store(std::span(&rows, 1));
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return cache.read(request).value_or(std::vector<float>{});
}

using Floats = std::vector<float>;

TEST(SchemeCache, VllmsInt8OfATokenAndHead) {
  const KvPolicy* policy = find_kv_policy("vllm-int8-per-token-head");
  ASSERT_NE(policy, nullptr);
  SchemeCache cache(policy->k, 0, 1, 2, 2);
  // Head 0: scale 127 / 127 = 1, 0.5 goes away from zero. Head 1: 254 / 127 = 2, -3 / 2 = -1.5 goes to -2.
  EXPECT_EQ(stored(cache, {127, 0.5F, 254, -3}), (Floats{127, 1, 254, -4}));
  EXPECT_EQ(stored(cache, {0, 0, 1e-9F, 0}, 1), (Floats{127, 1, 254, -4, 0, 0, 0, 0})) << "scales of 1e-6";
  EXPECT_EQ(cache.counts().flushed, 1);
  EXPECT_EQ(cache.counts().elements, 8);
}

TEST(SchemeCache, VllmsLockedScaleClipsWhatCameLater) {
  const KvPolicy* policy = find_kv_policy("vllm-locked");
  ASSERT_NE(policy, nullptr);
  SchemeCache cache(policy->k, 0, 1, 1, 2);
  EXPECT_EQ(stored(cache, {2, -1}), (Floats{2 * 0.96F, -0.96F})) << "scale 0.01: 200 lies between 192 and 208";
  EXPECT_EQ(cache.counts().clipped, 0);
  const Floats later = stored(cache, {5, -100}, 0, 1);
  EXPECT_FLOAT_EQ(later[0], 4.48F) << "448 x 0.01, of another request";
  EXPECT_FLOAT_EQ(later[1], -4.48F);
  EXPECT_EQ(cache.counts().clipped, 2);
}

TEST(SchemeCache, TransformersLocksASequence) {
  const KvPolicy* policy = find_kv_policy("transformers-fp8");
  ASSERT_NE(policy, nullptr);
  SchemeCache cache(policy->k, 0, 1, 1, 2);
  EXPECT_EQ(stored(cache, {448, 1}), (Floats{448, 1}));
  EXPECT_EQ(stored(cache, {1000, 1}, 1), (Floats{448, 1, 448, 1})) << "the sequence's scale is 1";
  EXPECT_EQ(stored(cache, {896, 2}, 0, 1), (Floats{896, 2})) << "another sequence has its own";
}

TEST(SchemeCache, LmdeployMakesNanOfConstantHeadsAndKiviDoesNot) {
  const KvPolicy* lmdeploy = find_kv_policy("lmdeploy-int8");
  ASSERT_NE(lmdeploy, nullptr);
  SchemeCache cache(lmdeploy->k, 0, 1, 2, 2);
  const Floats read = stored(cache, {3, 3, 0, 255});
  EXPECT_TRUE(std::isnan(read[0]) && std::isnan(read[1]));
  EXPECT_EQ(read[2], 0);
  EXPECT_EQ(read[3], 255);
  EXPECT_EQ(cache.counts().non_finite, 2);
  SchemeCache kivi(scheme("int2,axis=block,group=2,statistic=min_max,zero=value"), 0, 1, 1, 4);
  EXPECT_EQ(stored(kivi, {3, 3, -1, 2}), (Floats{3, 3, -1, 2})) << "steps of 1 from -1 on";
}

TEST(SchemeCache, AWindowKeepsTheNewestAndTheFirst) {
  SchemeCache cache(scheme("int2,axis=token,smallest=1,keep_first=1,keep_last=2"), 0, 1, 1, 2);
  EXPECT_EQ(stored(cache, {0.3F, 0.3F, 0.4F, 0.4F, 0.6F, 0.6F}), (Floats{0.3F, 0.3F, 0.4F, 0.4F, 0.6F, 0.6F}));
  EXPECT_EQ(stored(cache, {0.7F, 0.7F}, 3), (Floats{0.3F, 0.3F, 0, 0, 0.6F, 0.6F, 0.7F, 0.7F}));
  EXPECT_EQ(stored(cache, {2, 2}, 4), (Floats{0.3F, 0.3F, 0, 0, 1, 1, 0.7F, 0.7F, 2, 2}));
  EXPECT_EQ(stored(cache, {5, 5}), (Floats{5, 5})) << "from position 0 on the sequence begins anew";
}

TEST(SchemeCache, AFilledWindowIsQuantizedAtOnceAndAPromptWhole) {
  SchemeCache cache(scheme("int2,axis=token,smallest=1,keep_last=2,window=filled,own=as_is"), 0, 1, 1, 1);
  EXPECT_EQ(stored(cache, {0.3F, 0.7F, 0.8F}), (Floats{0, 1, 1}));
  EXPECT_EQ(stored(cache, {0.9F}, 3), (Floats{0, 1, 1, 0.9F}));
  EXPECT_EQ(stored(cache, {0.2F}, 4), (Floats{0, 1, 1, 1, 0}));
}

TEST(SchemeCache, ChannelsWaitForTheirGroupOfTokens) {
  SchemeCache cache(scheme("int8,axis=channel,group=2"), 0, 1, 1, 2);
  EXPECT_EQ(stored(cache, {127, 0.6F, 0.4F, 63.5F, 9.75F, 9.75F}), (Floats{127, 0.5F, 0, 63.5F, 9.75F, 9.75F}));
}

TEST(SchemeCache, SmallSharesOfOutliersAreReadAsTheyAre) {
  SchemeCache cache(scheme("int4,axis=token,statistic=outliers,outliers=0.25"), 0, 1, 1, 4);
  EXPECT_EQ(stored(cache, {7, -3.2F, 1, 1000.5F}), (Floats{7, -3, 1, 1000.5F}));
  EXPECT_EQ(cache.counts().elements, 3);
}

TEST(SchemeCache, AMeanIsTakenOffAndPutBack) {
  SchemeCache cache(scheme("int8,axis=token,transform=minus_mean,smallest=1"), 0, 1, 1, 2);
  // Means 100 and 0; less them -2 2 / 2 -2.
  EXPECT_EQ(stored(cache, {98.25F, 2, 101.75F, -2}), (Floats{98, 2, 102, -2}));
}

TEST(SchemeCache, LayersThatAreLeftOutKeepTheirRows) {
  const KvScheme late = scheme("int2,axis=token,smallest=1,layers=late");
  SchemeCache early(late, 1, 4, 1, 2);
  EXPECT_EQ(stored(early, {0.3F, 0.7F}), (Floats{0.3F, 0.7F}));
  SchemeCache later(late, 2, 4, 1, 2);
  EXPECT_EQ(stored(later, {0.3F, 0.7F}), (Floats{0, 1}));
}

TEST(SchemeCache, AStepOfSeveralSequencesHasOneScaleOfTheStep) {
  SchemeCache cache(scheme("int8"), 0, 1, 1, 1);
  const Floats small = {1};
  const Floats large = {127};
  const KvRows rows[] = {{small, 1, 0}, {large, 2, 0}};
  ASSERT_TRUE(cache.store(rows));
  EXPECT_EQ(cache.read(1).value(), (Floats{1}));
  const Floats half = {0.5F};
  const KvRows more[] = {{half, 1, 1}, {large, 2, 1}};
  ASSERT_TRUE(cache.store(more));
  EXPECT_EQ(cache.read(1).value(), (Floats{1, 0})) << "0.5 ties to 0 under the neighbour's scale";
}

TEST(SchemeCache, SaysInOneLineWhatItCannotStore) {
  SchemeCache cache(scheme("int8,axis=token"), 0, 1, 1, 4);
  const Floats values = {1, 2, 3};
  const KvRows odd{values, 3, 0};
  EXPECT_EQ(cache.store(std::span(&odd, 1)).error().message, "rows of request 3: 3 values are no rows of 4");
  EXPECT_EQ(cache.read(9).error().message, "nothing of request 9 was stored");
  SchemeCache rotated(scheme("int8,axis=token,transform=hadamard"), 0, 1, 1, 3);
  const KvRows three{values, 0, 0};
  EXPECT_EQ(rotated.store(std::span(&three, 1)).error().message,
            "KV scheme 'int8,axis=token,transform=hadamard': a head of 3 channels is no power of two: no "
            "transform=hadamard");
}

/// Processor seconds to store so many tokens, one a step.
double seconds_of_steps(std::int64_t tokens) {
  SchemeCache cache(find_kv_policy("vllm-locked")->k, 0, 1, 4, 64);
  const Floats row(256, 0.5F);
  const std::clock_t start = std::clock();
  for (std::int64_t t = 0; t < tokens; ++t) {
    const KvRows rows{row, 0, t};
    EXPECT_TRUE(cache.store({&rows, 1}));
  }
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(SchemeCache, StepsTakeTimeInProportionToTheirNumber) {
  const double once = std::min(seconds_of_steps(500), seconds_of_steps(500));
  EXPECT_LT(std::min(seconds_of_steps(2000), seconds_of_steps(2000)), 8 * once) << "16 times would be the square";
}

}  // namespace
}  // namespace nanscope
