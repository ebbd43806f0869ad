#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/instrument/train/train_rig.h"

/// What mixtures of experts and attention sinks have of their own in a training step; their losses are compared with
/// PyTorch's in test_trainer.cpp.
namespace nanscope::train {
namespace {

using testing::expect_same_bits;
using testing::first_gradients;
using testing::Knobs;
using testing::train_config;
using testing::TrainRig;

/// Every part that a mixture can have.
const Knobs kMixture{{"model.experts", "4"},           {"model.experts_per_token", "2"},
                     {"model.expert_width", "24"},     {"model.shared_expert_width", "16"},
                     {"model.router_bias", "true"},    {"model.mlp_bias", "true"},
                     {"model.attention_sinks", "true"}};

Knobs with(Knobs knobs, const Knobs& more) {
  knobs.insert(knobs.end(), more.begin(), more.end());
  return knobs;
}

bool is_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float one) { return one == 0.0F; });
}
bool is_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float one) { return std::isfinite(one); });
}

/// The state of a trainer whose router never chooses expert 3 of layer 0, and of whose weights each is huge.
TrainState without_expert(const TrainRig& rig, const std::string& expert) {
  TrainState state = rig.trainer->state().value();
  state.weights.at("layers.0.router.bias").at(3) = -1e4F;
  for (auto& [name, values] : state.weights) {
    if (name.find(expert) == std::string::npos) continue;
    for (float& value : values) value = value < 0 ? -3e38F : 3e38F;
  }
  return state;
}

/// What an expert makes of tokens that did not choose it is nobody's, be it Inf or NaN; its own gradient is zeros, so
/// that AdamW decays its moments and weights like those of every weight.
TEST(ExpertTraining, AnExpertThatNobodyChoseHasZeros) {
  TrainRig rig(train_config(
      with(kMixture, {{"train.beta1", "0"}, {"train.clip", "0"}, {"moe.score", "softmax"}, {"moe.bias", "false"}})));
  const Status restored = rig.trainer->restore(without_expert(rig, "layers.0.experts.3."));
  ASSERT_TRUE(restored) << restored.error().message;
  const StepReport report = rig.step();
  EXPECT_TRUE(std::isfinite(report.loss));
  EXPECT_TRUE(std::isfinite(report.gradient_norm));
  EXPECT_GT(report.gradient_norm, 0);
  int zeros = 0;
  for (const auto& [name, moments] : rig.state().moments) {
    EXPECT_TRUE(is_finite(moments.first)) << name;
    if (name.find("layers.0.experts.3.") == std::string::npos) continue;
    EXPECT_TRUE(is_zero(moments.first)) << name;
    ++zeros;
  }
  EXPECT_EQ(zeros, 6);
}

/// Of one that some token chose, Inf is in the loss.
TEST(ExpertTraining, AnExpertThatIsChosenPassesItsInfinitiesOn) {
  TrainRig rig(train_config(kMixture));
  TrainState state = without_expert(rig, "layers.0.experts.2.");
  ASSERT_TRUE(rig.trainer->restore(state));
  EXPECT_FALSE(std::isfinite(rig.step().loss));
}

TEST(ExpertTraining, EveryPartHasAGradient) {
  const auto gradients = first_gradients(kMixture);
  for (const char* name : {"layers.0.router.weight", "layers.0.router.bias", "layers.0.shared_gate.weight",
                           "layers.0.shared_expert.up_proj.weight", "layers.0.shared_expert.down_proj.bias",
                           "layers.0.attention.sinks", "layers.1.attention.sinks"}) {
    ASSERT_TRUE(gradients.contains(name)) << name;
    EXPECT_FALSE(is_zero(gradients.at(name))) << name;
  }
  EXPECT_TRUE(is_zero(gradients.at("layers.0.router.e_score_correction_bias"))) << "it only chooses";
}

TEST(ExpertTraining, GoesOnWithEveryBit) {
  const Knobs knobs = with(kMixture, {{"train.order", "shuffled"}, {"train.gradient_format", "bf16"}});
  TrainRig whole(train_config(knobs));
  whole.steps(4);
  TrainRig begun(train_config(knobs));
  begun.steps(2);
  TrainRig resumed(train_config(knobs));
  ASSERT_TRUE(resumed.trainer->restore(begun.state()));
  resumed.steps(2);
  expect_same_bits(resumed.state(), whole.state(), "experts");
}

TEST(ExpertTraining, HasTheSameBitsOnEveryMachine) {
  const Knobs knobs = with(kMixture, {{"train.blocks", "mxfp4"}, {"train.stochastic", "true"}});
  TrainRig first(train_config(knobs));
  first.steps(3);
  for (const auto& [isa, threads] :
       {std::pair("cpu:baseline", 2), std::pair("cpu:avx2", 1), std::pair("cpu:avx512", 2)}) {
    if (!kernels::make_device(isa, 1)) continue;
    TrainRig rig(train_config(knobs), testing::kText, isa, threads);
    rig.steps(3);
    expect_same_bits(rig.state(), first.state(), std::string(isa) + " " + std::to_string(threads));
  }
}

/// Ranks sum gradients of experts that some of them did not choose.
TEST(ExpertTraining, TwoRanksTrainWhatOneTrains) {
  const auto one = first_gradients(with(kMixture, {{"train.batch", "4"}, {"model.experts", "8"}}));
  const auto two =
      first_gradients(with(kMixture, {{"train.batch", "4"}, {"model.experts", "8"}, {"train.ranks", "2"}}));
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [name, values] : one) {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(two.at(name)[i], values[i], 2e-6 * largest) << name << " " << i;
    }
  }
}

/// Attention on blocks makes its probabilities again, beside the sinks too.
TEST(ExpertTraining, SinksStandBesideTiles) {
  const Knobs knobs{{"model.attention_sinks", "true"}, {"train.length", "32"}, {"train.attention_blocks", "false"}};
  const auto plain = first_gradients(knobs);
  const auto tiled = first_gradients(with(knobs, {{"attention.blocks_v", "mxfp8"}}));
  for (const auto& [name, values] : plain) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(double{tiled.at(name)[i]} - double{values[i]}, 2);
      norm += std::pow(double{values[i]}, 2);
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(difference, 0.05 * norm) << name;
  }
}

}  // namespace
}  // namespace nanscope::train
