#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine_rig.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;
using testing::Knobs;
using testing::tiny_config;

RequestSpec ids(std::vector<std::int32_t> prompt, int max_tokens, std::int64_t arrive = 0) {
  RequestSpec request{.name = "r", .parts = {TokensPart{std::move(prompt)}}, .max_tokens = max_tokens};
  request.arrive = arrive;
  return request;
}

EngineConfig batch_config(Knobs changes) {
  changes.insert(changes.begin(), {{"model.vocabulary", "61"}, {"kv.block_size", "4"}});
  return tiny_config(changes);
}

/// "request:first_token+rows" of each span of each step.
std::string schedule_of(const std::vector<StepRow>& steps) {
  std::string text;
  for (const StepRow& step : steps) {
    for (const Span& span : step.all_spans()) {
      text +=
          std::to_string(span.request) + ":" + std::to_string(span.first_token) + "+" + std::to_string(span.rows) + " ";
    }
    text += "/" + std::to_string(step.tokens) + "; ";
  }
  return text;
}

TEST(Batch, ChunksStandBesideDecodesAndRowsArePadded) {
  const EngineConfig config = batch_config({{"engine.batch", "2"}, {"engine.chunk", "3"}, {"engine.pad_to", "4"}});
  const auto seen = testing::collect(config, {ids({1, 2}, 4), ids({3, 4, 5, 6, 7}, 2, 1)});
  EXPECT_EQ(schedule_of(seen.steps), "0:0+2 /4; 0:2+1 1:0+3 /4; 0:3+1 1:3+2 /4; 0:4+1 1:5+1 /4; ");
}

TEST(Batch, TheLastToComeGivesUpItsBlocksAndIsComputedAgain) {
  // Two blocks of four: both fit until the first one needs its second block.
  const EngineConfig config = batch_config({{"engine.batch", "2"}, {"kv.blocks", "2"}, {"kv.prefix_cache", "false"}});
  const auto seen = testing::collect(config, {ids({1, 2, 3, 4}, 3), ids({5, 6}, 3)});
  EXPECT_EQ(schedule_of(seen.steps), "0:0+4 1:0+2 /6; 0:4+1 /1; 0:5+1 /1; 1:0+3 /3; 1:3+1 /1; ");
}

TEST(Batch, ABlockOfARunningRequestIsShared) {
  const EngineConfig config = batch_config({{"engine.batch", "2"}});
  const auto seen = testing::collect(config, {ids({1, 2, 3, 4, 5}, 4), ids({1, 2, 3, 4, 9}, 2, 1)});
  EXPECT_EQ(schedule_of(seen.steps), "0:0+5 /5; 0:5+1 1:4+1 /2; 0:6+1 1:5+1 /2; 0:7+1 /1; ");
}

TEST(Batch, KnobsThatDoNotGoTogetherAreRefused) {
  const auto refused = [](const Knobs& knobs) {
    const Status status = check(batch_config(knobs));
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(refused({{"engine.chunk", "4"}}), HasSubstr("engine.chunk needs engine.batch"));
  EXPECT_THAT(refused({{"engine.pad_to", "4"}}), HasSubstr("engine.pad_to needs engine.batch"));
  EXPECT_THAT(refused({{"engine.batch", "2"}, {"kv.sleep_after", "1"}}), HasSubstr("kv.sleep_after"));
  EXPECT_THAT(refused({{"engine.batch", "2"}, {"engine.dummy_batch", "masked"}, {"engine.dummy_at", "decode"}}),
              HasSubstr("engine.dummy_at"));
  EXPECT_THAT(refused({{"sampling.temperature", "-1"}}), HasSubstr("sampling.temperature"));
  EXPECT_THAT(refused({{"sampling.temperature", "nan"}}), HasSubstr("sampling.temperature"));
}

/// Pearson's statistic of 3000 draws against softmax(logits / T) in double. Its mean is the number of cells less one.
TEST(Sampling, DrawsFollowTheSoftmaxOfTheLogits) {
  constexpr int kDraws = 3000;
  constexpr double kTemperature = 0.5;
  testing::Rig rig(batch_config({}));
  const std::vector<RequestSpec> request{ids({1, 2, 3}, 1)};
  const std::vector<float> logits = rig.collect(request).last_logits(0, 0);
  std::vector<double> expected;
  double sum = 0;
  for (const float logit : logits) sum += expected.emplace_back(std::exp(double{logit} / kTemperature));
  std::vector<int> drawn(logits.size(), 0);
  NullProbe nobody;
  for (int seed = 0; seed < kDraws; ++seed) {
    EngineConfig config = rig.engine->config();
    config.sampling = {static_cast<float>(kTemperature), seed};
    const auto engine = Engine::create(config, *rig.device, rig.model, testing::shipped_tokenizer()).value();
    ++drawn[static_cast<std::size_t>(engine->run(request, nobody).value().requests[0].output_tokens[0])];
  }
  double statistic = 0;
  double rest = 0;
  int rest_drawn = 0;
  int cells = 0;
  for (std::size_t token = 0; token < drawn.size(); ++token) {
    const double mean = kDraws * expected[token] / sum;
    if (mean < 5) {
      rest += mean;
      rest_drawn += drawn[token];
      continue;
    }
    ++cells;
    statistic += (drawn[token] - mean) * (drawn[token] - mean) / mean;
  }
  statistic += rest > 0 ? (rest_drawn - rest) * (rest_drawn - rest) / rest : 0;
  ASSERT_GT(cells, 3);
  EXPECT_LT(statistic, cells + 5 * std::sqrt(2.0 * cells));
}

}  // namespace
}  // namespace nanscope
