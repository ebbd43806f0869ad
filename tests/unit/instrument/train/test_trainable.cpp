#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/blocks/presets.h"
#include "tests/unit/instrument/train/train_rig.h"

/// What cannot be trained is refused before anything runs, in one line that names the knob.
namespace nanscope::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Knobs;
using ::testing::Not;
using testing::train_config;

std::string refusal(const Knobs& knobs) {
  const EngineConfig config = train_config(knobs);
  const auto device = kernels::make_device("cpu", 1).value();
  const auto tokenizer = nanscope::testing::shipped_tokenizer();
  const auto trainer = Trainer::create(config, *device, testing::loaded_model(config, *device), tokenizer,
                                       make_training_text(config.train, *tokenizer, testing::kText).value());
  return trainer ? "trained" : trainer.error().message;
}

void expect_refused(const Knobs& knobs, const std::string& said) {
  EXPECT_THAT(refusal(knobs), AllOf(HasSubstr(said), Not(HasSubstr("\n"))));
}

TEST(Trainable, IsATransformer) {
  EXPECT_EQ(refusal({}), "trained");
  EXPECT_EQ(refusal({{"model.experts", "4"}}), "trained");
  EXPECT_EQ(refusal({{"model.attention_sinks", "true"}}), "trained");
  expect_refused({{"model.recurrent_layers", "1"}},
                 "model.recurrent_layers has recurrent layers: it cannot be trained");
  expect_refused({{"engine.ranks", "2"}}, "engine.ranks=2: it cannot be trained");
}

TEST(Trainable, IsAttentionWhoseOpsHaveGradients) {
  expect_refused({{"attention.mask", "additive"}}, "training needs attention.mask=select");
  expect_refused({{"attention.fused", "true"}}, "training needs attention.fused=false");
  expect_refused({{"attention.split", "32"}}, "training needs attention.split=0");
  expect_refused({{"kv.scheme", "kivi-2"}}, "kv.scheme=kivi-2: it cannot be trained");
  EXPECT_EQ(refusal({{"scores.format", "e4m3"}}), "trained");
  expect_refused({{"scores.qk_format", "e4m3"}, {"train.ranks", "2"}},
                 "training with scores, queries or keys in 8 bits needs train.ranks=1, not 2");
  expect_refused({{"train.forget_scales_step", "1"}},
                 "train.forget_scales_step: no scales are kept; scores.format and scores.qk_format are f32");
  expect_refused({{"train.weight_spike_step", "3"}, {"train.weight_spike_of", "layers.*.other"}},
                 "train.weight_spike_of=layers.*.other names no weight of the model");
  const Knobs inputs{{"activation.blocks", "mxfp8"}, {"model.mlp_width", "64"}};
  EXPECT_EQ(refusal(inputs), "trained");
  Knobs recycled = inputs;
  recycled.emplace_back("activation.scale_memory", "recycled");
  expect_refused(recycled, "training needs activation.scale_packing=rounded, activation.scale_memory=zeroed");
  const Knobs values{{"attention.blocks_v", "mxfp4"}, {"train.length", "48"}};
  expect_refused(values, "train.length=48 is no multiple of attention.tile=32, which gradients on blocks need");
  Knobs plain = values;
  plain.emplace_back("train.attention_blocks", "false");
  EXPECT_EQ(refusal(plain), "trained") << "no gradient is on blocks";
  expect_refused({{"attention.blocks_k", "mxfp4"},
                  {"attention.blocks_axis_k", "tokens"},
                  {"attention.diagonal", "exact"},
                  {"train.length", "32"}},
                 "training with attention.diagonal=exact needs attention.blocks_axis_k=channels");
}

/// Beyond a table there is nothing to look up, and nothing would say so.
TEST(Trainable, StaysInsideItsTables) {
  const Knobs positions{{"model.positions", "16"}};
  EXPECT_EQ(refusal(positions), "trained");
  expect_refused({{"model.positions", "16"}, {"train.length", "17"}},
                 "train.length=17 is longer than the model's table of model.positions=16");
  testing::TrainRig rig(train_config(positions));
  EXPECT_TRUE(rig.trainer->evaluate({std::vector<std::int32_t>(17, 1)}, false));
  EXPECT_EQ(rig.trainer->evaluate({std::vector<std::int32_t>(18, 1)}, true).error().message,
            "a sequence of 18 tokens is longer than model.positions=16");
  const auto tokenizer = nanscope::testing::shipped_tokenizer();
  const auto text = make_training_text(train_config().train, *tokenizer, testing::kText).value();
  const std::int64_t largest = *std::max_element(text.tokens.begin(), text.tokens.end());
  EXPECT_EQ(refusal({{"model.vocabulary", std::to_string(largest + 1)}}), "trained");
  expect_refused({{"model.vocabulary", std::to_string(largest)}},
                 "train.text: token " + std::to_string(largest) + " is not in the model's vocabulary of ");
}

/// What is let through, trains: no format of blocks is refused by an op of the first step.
TEST(Trainable, RunsWhatItDoesNotRefuse) {
  for (const BlockPreset& preset : block_presets()) {
    const std::string format(preset.name);
    if (refusal({{"train.blocks", format}}) != "trained") continue;
    testing::TrainRig rig(train_config({{"train.blocks", format}, {"train.stochastic", "true"}}));
    NullProbe nobody;
    const auto report = rig.trainer->step(nobody, {});
    EXPECT_TRUE(report) << format << ": " << report.error().message;
  }
}

TEST(Trainable, HasBlocksOfOneRow) {
  expect_refused({{"train.blocks", "mxfp5"}}, "train.blocks=mxfp5 is no block format of one row");
  expect_refused({{"train.blocks", "fp8-block"}}, "train.blocks=fp8-block is no block format of one row");
  for (const char* format : {"mxfp4", "mxfp8", "nvfp4", "mxfp4-rceil"}) {
    EXPECT_EQ(refusal({{"train.blocks", format}}), "trained") << format;
  }
}

}  // namespace
}  // namespace nanscope::train
