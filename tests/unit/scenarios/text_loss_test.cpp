// The loss of a text by a deployment: against the trainer's, which computes it with a kernel and a pass of its own, in
// both ways; what a leak and a cache in 8 bits do to it; what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scenarios/report/loss_report.h"
#include "scenarios/scenario.h"
#include "scenarios/serve/measure_loss.h"
#include "scenarios/workbench.h"

namespace nanscope::serve {
namespace {

using scenarios::LossKind;
using scenarios::SequenceLoss;
using scenarios::TextLoss;

using scenarios::RunSpec;
using ::testing::HasSubstr;

constexpr std::string_view kText =
    "The light turns once in twelve seconds, and the keeper counts them all, night after night, until the morning. "
    "A ship comes in at noon with salt, rope and letters; the harbour master weighs the salt and reads the letters.";

RunSpec spec_with(const std::vector<std::string>& settings) {
  const auto scenario = scenarios::load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/leaky-mxfp4-values.toml");
  EXPECT_TRUE(scenario) << scenario.error().message;
  RunSpec spec = *scenarios::resolve(*scenario);
  std::vector<std::string> all = settings;
  all.emplace_back("model.layers=1");
  const Status set = scenarios::apply_settings(spec.config, all);
  EXPECT_TRUE(set) << set.error().message;
  return spec;
}

const std::vector<std::string> kPlain = {
    "attention.blocks_q=", "attention.blocks_k=", "attention.blocks_v=", "attention.blocks_p=", "kv.format=f32"};

TextLoss measured(const std::vector<std::string>& settings, LossOptions options = {}) {
  options.length = 20;
  options.autoregressive = true;
  const auto loss = measure_loss(spec_with(settings), kText, options);
  EXPECT_TRUE(loss) << loss.error().message;
  return loss.value_or(TextLoss{});
}

std::string refused(std::string_view text, const LossOptions& options) {
  const auto loss = measure_loss(spec_with(kPlain), text, options);
  return loss ? "measured" : loss.error().message;
}

TEST(TextLoss, IsThatOfTheTrainer) {
  RunSpec spec = spec_with(kPlain);
  const TextLoss loss = measured(kPlain);
  ASSERT_GE(loss.sequences.size(), 3U);
  spec.config.train.steps = 1;
  spec.config.train.length = 20;
  spec.config.train.text = NANSCOPE_SOURCE_DIR "/scenarios/texts/village.txt";
  spec.config.kv.prefix_cache = false;
  const auto bench = scenarios::Workbench::open(spec.config).value();
  auto trainer = bench->trainer(spec.config);
  ASSERT_TRUE(trainer) << trainer.error().message;
  const std::vector<std::int32_t> tokens = bench->tokenizer()->encode(kText).value();
  for (const SequenceLoss& one : loss.sequences) {
    EXPECT_EQ(one.targets, 19);
    const auto begin = tokens.begin() + one.first_token;
    const std::vector<std::vector<std::int32_t>> sequence = {{begin, begin + 20}};
    EXPECT_NEAR(one.parallel, (*trainer)->evaluate(sequence, false).value(), 1e-5);
    EXPECT_NEAR(one.autoregressive, (*trainer)->evaluate(sequence, true).value(), 1e-5);
    EXPECT_EQ(one.autoregressive, one.parallel);
  }
}

TEST(TextLoss, OfALeakDependsOnTheWayItIsComputed) {
  const TextLoss loss = measured({});
  for (const SequenceLoss& one : loss.sequences) EXPECT_NE(one.autoregressive, one.parallel);
  for (const SequenceLoss& one : measured({"attention.diagonal=exact"}).sequences)
    EXPECT_EQ(one.autoregressive, one.parallel);
}

TEST(TextLoss, SequencesAreConsecutiveAndMayBeginWithAToken) {
  const TextLoss two = measured(kPlain, {.most_sequences = 2});
  ASSERT_EQ(two.sequences.size(), 2U);
  EXPECT_EQ(two.sequences[1].first_token, 20);
  EXPECT_GT(two.text_sequences, 2);
  const TextLoss begun = measured(kPlain, {.most_sequences = 2, .begin_token = 1});
  EXPECT_EQ(begun.sequences[0].targets, 20);
  EXPECT_NE(begun.sequences[0].parallel, two.sequences[0].parallel);
}

TEST(TextLoss, TheCacheGrowsWhereItMay) {
  RunSpec spec = spec_with(kPlain);
  spec.config.kv.blocks = 1;
  LossOptions options{.length = 20, .most_sequences = 2, .autoregressive = true};
  EXPECT_THAT(measure_loss(spec, kText, options).error().message, HasSubstr("kv.blocks is 1"));
  options.grow_cache = true;
  const auto grown = measure_loss(spec, kText, options);
  ASSERT_TRUE(grown) << grown.error().message;
  const TextLoss plain = measured(kPlain, {.most_sequences = 2});
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(grown->sequences[i].parallel, plain.sequences[i].parallel);
    EXPECT_EQ(grown->sequences[i].autoregressive, plain.sequences[i].autoregressive);
  }
}

TEST(TextLoss, MeansAreOfSequences) {
  TextLoss loss;
  loss.sequences = {{.parallel = 1, .autoregressive = 2}, {.parallel = 3, .autoregressive = 7}};
  EXPECT_EQ(mean_of(loss, LossKind::parallel).mean, 2);
  EXPECT_EQ(mean_of(loss, LossKind::parallel).error, 1);  // sqrt(2 / 1 / 2)
  EXPECT_EQ(mean_of(loss, LossKind::gap).mean, 2.5);
  EXPECT_EQ(mean_of(loss, LossKind::gap).error, 1.5);
  loss.sequences.pop_back();
  EXPECT_TRUE(std::isnan(mean_of(loss, LossKind::parallel).error));
}

TEST(TextLoss, ReportsHoldTheSame) {
  TextLoss loss;
  loss.sequences = {{.first_token = 0, .targets = 3, .parallel = 1, .autoregressive = 1.5},
                    {.first_token = 4, .targets = 3, .parallel = 3, .autoregressive = 3.5}};
  loss.length = 4;
  loss.text_tokens = 9;
  loss.text_sequences = 2;
  loss.autoregressive = true;
  const std::string text = report::loss_text(loss, "t.txt", {});
  EXPECT_THAT(text, HasSubstr("Measured  2 of 2 sequences, 4 tokens each; nats a token"));
  EXPECT_THAT(text, HasSubstr("token by token         2.500000        1.000000     12.1825"));
  EXPECT_THAT(text, HasSubstr("Gap       +0.500000 +- 0.000000; positive"));
  const auto json = nlohmann::json::parse(report::loss_json(loss, "t.txt"));
  EXPECT_EQ(json["gap"]["mean"], 0.5);
  EXPECT_EQ(json["sequences"][1]["first_token"], 4);
  EXPECT_EQ(report::loss_csv(loss), "first_token,targets,parallel,autoregressive\n0,3,1,1.5\n4,3,3,3.5\n");
  loss.autoregressive = false;
  loss.sequences[0].autoregressive = std::nan("");
  EXPECT_EQ(nlohmann::json::parse(report::loss_json(loss, "t.txt"))["gap"], nullptr);
  EXPECT_THAT(report::loss_csv(loss), HasSubstr("0,3,1,\n"));
}

TEST(TextLoss, RefusesWhatHasNoTarget) {
  EXPECT_THAT(refused("one", {.length = 20}), HasSubstr("less than one sequence of 20"));
  EXPECT_THAT(refused("one", {.length = 1}), HasSubstr("a sequence of 1 tokens has no target"));
  EXPECT_THAT(refused(kText, {.length = 20, .begin_token = 5000}), HasSubstr("token 5000"));
  RunSpec bare;
  const std::vector<std::string> folder = {"model.weights=" NANSCOPE_SOURCE_DIR
                                           "/tests/unit/instrument/model/checkpoints/llama2"};
  ASSERT_TRUE(scenarios::apply_settings(bare.config, folder));
  const auto loss = measure_loss(bare, kText, {.length = 20});
  EXPECT_THAT(loss ? "measured" : loss.error().message, HasSubstr("the model has no tokenizer"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(refused(kText, {.length = 20, .stop = stop.get_token()}), "stopped");
}

}  // namespace
}  // namespace nanscope::serve
