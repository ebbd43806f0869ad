// Attention's scores in fp8: what is stored, what the softmax reads, and whose scale it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/codec.h"
#include "engine_rig.h"

namespace nanscope {
namespace {

using testing::CollectProbe;
using testing::Knobs;
using testing::Seen;

CollectProbe scored(Knobs knobs, int max_tokens = 4) {
  knobs.emplace_back("scores.format", "e4m3");
  return testing::collect(testing::tiny_config(knobs),
                          {testing::text_request("the lamp turns above the water", max_tokens)});
}

const ScaleRow& ledger(const CollectProbe& probe, std::int64_t step, std::int64_t layer) {
  for (const ScaleRow& row : probe.scales) {
    if (row.target == "x" && row.step == step && row.layer == layer) return row;
  }
  ADD_FAILURE() << "no scale of scores in step " << step;
  return probe.scales.front();
}

double absmax(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

TEST(ScoreBook, TheSoftmaxReadsCodesTimesTheScale) {
  const CollectProbe probe = scored({{"scores.policy", "current"}});
  const std::vector<float> scores = probe.find(0, 0, 1, "scores", "out").floats();
  const Seen& codes = probe.find(0, 0, 1, "scores_quantise", "codes");
  const std::vector<float> read = probe.find(0, 0, 1, "scores_dequantise", "out").floats();
  const float scale = probe.find(0, 0, 1, "scores_quantise", "scale").floats().front();
  EXPECT_EQ(codes.format, Format::e4m3);
  EXPECT_EQ(scale, static_cast<float>(absmax(scores) / 448));
  EXPECT_EQ(ledger(probe, 1, 1).scale, double{scale});
  EXPECT_NEAR(ledger(probe, 1, 1).headroom, 1, 1e-6);
  ASSERT_EQ(read.size(), scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::uint32_t code = encode(Format::e4m3, scores[i] / scale, Overflow::saturate);
    ASSERT_EQ(static_cast<std::uint32_t>(codes.bytes[i]), code) << i;
    ASSERT_EQ(read[i], decode(Format::e4m3, code) * scale) << i;
  }
}

/// Weights that were just loaded have no history: it begins as one score of 1.
TEST(ScoreBook, DelayedScalesStandForNothingAtFirstAndForTheStepsBeforeFromThenOn) {
  const CollectProbe probe = scored({{"scores.policy", "delayed"}, {"model.init_scale", "4"}});
  const ScaleRow& first = ledger(probe, 1, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(first.scale), 1 / (0.9F * 448));
  EXPECT_EQ(first.source, ScaleSource::fixed);
  const double largest = absmax(probe.find(0, 0, 0, "scores", "out").floats());
  ASSERT_GT(largest, 2);
  EXPECT_LT(first.headroom, 1);
  EXPECT_EQ(absmax(probe.find(0, 0, 0, "scores_dequantise", "out").floats()),
            double{448 * static_cast<float>(first.scale)});
  const ScaleRow& second = ledger(probe, 2, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(second.scale), static_cast<float>(largest / (0.9F * 448)));
  EXPECT_EQ(second.source, ScaleSource::calibrated);
  EXPECT_EQ(second.calibrated_step, 1);
  EXPECT_EQ(second.calibrated_absmax, largest);
}

TEST(ScoreBook, GeometryHasItsScaleFromTheWeightsBeforeAnythingRan) {
  const CollectProbe small = scored({{"scores.policy", "geometry"}});
  const CollectProbe large = scored({{"scores.policy", "geometry"}, {"model.init_scale", "4"}});
  for (const CollectProbe* probe : {&small, &large}) {
    for (std::int64_t step = 1; step <= 4; ++step) {
      const ScaleRow& row = ledger(*probe, step, 1);
      EXPECT_EQ(row.source, ScaleSource::checkpoint);
      EXPECT_GT(row.headroom, 1.25) << "the calibrated bound takes 80 % of the format";
      EXPECT_EQ(row.scale, ledger(*probe, 1, 1).scale);
    }
  }
  EXPECT_NEAR(ledger(large, 1, 1).scale / ledger(small, 1, 1).scale, 16, 1e-4);
}

TEST(ScoreBook, NothingIsQuantizedUnlessAsked) {
  const CollectProbe probe = testing::collect(testing::tiny_config(), {testing::text_request("water")});
  EXPECT_THAT(probe.ops, ::testing::Not(::testing::Contains("scores_quantise")));
}

TEST(ScoreBook, IsRefusedWithRanksByName) {
  EXPECT_EQ(check(testing::tiny_config({{"scores.format", "e4m3"}, {"engine.ranks", "2"}})).error().message,
            "scores.format needs one rank");
}

}  // namespace
}  // namespace nanscope
