#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "instrument/train/checkpoint.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/train/train_rig.h"

/// Training whose forward pass rounds: scores, queries and keys in 8 bits, inputs and weights of products in blocks.
/// Losses and gradient norms against PyTorch with the same rounding are in test_trainer.cpp.
namespace nanscope::train {
namespace {

using ::testing::HasSubstr;
using testing::Knobs;
using testing::train_config;
using testing::TrainRig;

Knobs scores(Knobs more = {}) {
  more.insert(more.begin(), {"scores.format", "e4m3"});
  return more;
}

const ScoreBook::StepUse& use_of(const StepReport& report, std::int64_t layer, ScoreTarget target) {
  for (const ScoreBook::StepUse& use : report.scores) {
    if (use.layer == layer && use.target == target) return use;
  }
  ADD_FAILURE() << "no scale of layer " << layer;
  return report.scores.front();
}

/// Two sequences are one step of a history: with a history of one step its scale is that of the whole step before.
TEST(QuantizedForward, ABatchIsOneStepOfAHistory) {
  TrainRig rig(train_config(scores({{"scores.policy", "delayed"}, {"scores.history", "1"}, {"scores.margin", "1"}})));
  StepReport before = rig.step();
  for (const StepReport& report : rig.steps(3)) {
    ASSERT_EQ(report.scores.size(), before.scores.size());
    for (const ScoreBook::StepUse& use : report.scores) {
      const double seen = use_of(before, use.layer, use.target).absmax;
      EXPECT_EQ(use.scale, double{static_cast<float>(seen / 448)}) << "step " << report.step;
    }
    before = report;
  }
}

TEST(QuantizedForward, ScalesOfWeightsFollowThem) {
  TrainRig rig(train_config(scores({{"scores.policy", "geometry"}, {"train.learning_rate", "0.05"}})));
  const std::vector<StepReport> reports = rig.steps(4);
  for (std::size_t step = 1; step < reports.size(); ++step) {
    EXPECT_NE(reports[step].scores.front().scale, reports[step - 1].scores.front().scale) << "step " << step;
    for (const ScoreBook::StepUse& use : reports[step].scores) EXPECT_FALSE(use.overflows()) << "step " << step;
  }
}

Knobs without_rounding(const Knobs& knobs) {
  Knobs others;
  std::copy_if(knobs.begin(), knobs.end(), std::back_inserter(others),
               [](const auto& one) { return one.first.starts_with("model."); });
  return others;
}

/// What reads codes changes the loss; what has a gradient of its input changes it in the same direction.
TEST(QuantizedForward, ChangesTheLossAndTrains) {
  const auto losses = [](const Knobs& knobs) {
    TrainRig rig(train_config(knobs));
    std::vector<double> made;
    for (const StepReport& report : rig.steps(4)) made.push_back(report.loss);
    return made;
  };
  for (const Knobs& knobs :
       {scores({{"scores.policy", "current"}}), Knobs{{"scores.qk_format", "e4m3"}, {"scores.qk_policy", "current"}},
        Knobs{{"activation.blocks", "mxfp8"}, {"activation.block_ops", "linears"}, {"model.mlp_width", "64"}},
        Knobs{{"train.weight_blocks", "mxfp8"}}}) {
    const std::vector<double> rounded = losses(knobs);
    const std::vector<double> plain = losses(without_rounding(knobs));
    EXPECT_NE(rounded[0], plain[0]) << knobs.front().first;
    EXPECT_NEAR(rounded[0], plain[0], 0.01 * plain[0]) << knobs.front().first;
    EXPECT_NEAR(rounded[3], plain[3], 0.03 * plain[3]) << knobs.front().first;
    EXPECT_LT(rounded[3], rounded[0]) << knobs.front().first;
  }
}

/// Nothing is left out and nothing is scaled: gradients over rounded inputs have nearly the direction and the length.
TEST(QuantizedForward, GradientsOverRoundedInputsAreNear) {
  const auto plain = testing::first_gradients({{"model.mlp_width", "64"}});
  const auto rounded = testing::first_gradients(
      {{"model.mlp_width", "64"}, {"activation.blocks", "mxfp8"}, {"activation.block_ops", "linears"}});
  ASSERT_EQ(plain.size(), rounded.size());
  for (const auto& [name, values] : plain) {
    double dot = 0, own = 0, other = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      dot += double{values[i]} * double{rounded.at(name)[i]};
      own += double{values[i]} * double{values[i]};
      other += double{rounded.at(name)[i]} * double{rounded.at(name)[i]};
    }
    if (own == 0) continue;
    EXPECT_NEAR(dot / own, 1, 0.1) << name;
    EXPECT_GT(dot / std::sqrt(own * other), 0.98) << name;
  }
}

/// The weights that products read are those of the blocks; the optimizer's are not.
TEST(QuantizedForward, WeightsAreRoundedBehindEachStep) {
  TrainRig rig(train_config({{"train.weight_blocks", "mxfp8"}}));
  rig.steps(2);
  const TrainState state = rig.state();
  const std::string name = "layers.0.q_proj.weight";
  ASSERT_TRUE(state.rounded.contains(name));
  EXPECT_FALSE(state.rounded.contains("embed.weight"));
  const std::vector<float>& master = state.weights.at(name);
  const std::vector<float>& rounded = state.rounded.at(name);
  ASSERT_EQ(master.size(), rounded.size());
  std::size_t other = 0;
  for (std::size_t i = 0; i < master.size(); i += 32) {
    float largest = 0;
    for (std::size_t j = i; j < i + 32; ++j) largest = std::max(largest, std::abs(master[j]));
    // OCP MX 1.0: the scale is the power of two below the largest, over 2^8.
    const float scale = std::exp2(std::floor(std::log2(largest)) - 8);
    for (std::size_t j = i; j < i + 32; ++j) {
      const float code = std::min(std::abs(master[j]) / scale, 448.0F);
      const float step = std::max(std::exp2(std::floor(std::log2(code)) - 3), 0x1p-9F);
      EXPECT_LE(std::abs(rounded[j] - std::copysign(code * scale, master[j])), 0.5F * step * scale * 1.0001F);
      other += rounded[j] != master[j] ? 1 : 0;
    }
  }
  EXPECT_GT(other, master.size() / 2);
}

TEST(QuantizedForward, AResumedRunHasTheSameScales) {
  for (const char* policy : {"delayed", "monotonic", "auto_alpha", "geometry", "current"}) {
    const EngineConfig config = train_config(scores({{"scores.policy", policy}, {"scores.burn_in", "3"}}));
    TrainRig whole(config);
    const std::vector<StepReport> all = whole.steps(6);
    TrainRig first(config);
    first.steps(2);
    TrainRig second(config);
    ASSERT_TRUE(second.trainer->restore(first.state())) << policy;
    for (std::size_t step = 2; step < all.size(); ++step) {
      const StepReport report = second.step();
      EXPECT_EQ(report.loss, all[step].loss) << policy << ", step " << step;
      ASSERT_EQ(report.scores.size(), all[step].scores.size());
      for (std::size_t i = 0; i < report.scores.size(); ++i) {
        EXPECT_EQ(report.scores[i].scale, all[step].scores[i].scale) << policy << ", step " << step;
      }
    }
    testing::expect_same_bits(whole.state(), second.state(), policy);
    EXPECT_EQ(whole.state().scores, second.state().scores) << policy;
  }
}

TEST(QuantizedForward, TheScalesOfAFolderAreThoseThatWereSaved) {
  const EngineConfig config = train_config(scores({{"scores.policy", "delayed"}, {"scores.qk_format", "e4m3"}}));
  TrainRig rig(config);
  rig.steps(3);
  const TemporaryFolder folder;
  const TrainState state = rig.state();
  ASSERT_EQ(state.scores.size(), 3 * static_cast<std::size_t>(config.model.layers));
  const auto path = folder.path() / "model";
  const Status saved = save_checkpoint(path, config, *rig.trainer->model(), *rig.device, state, false);
  ASSERT_TRUE(saved) << saved.error().message;
  const auto loaded = load_checkpoint(path, config);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->scores, state.scores);
  TrainState lost = *loaded;
  lost.scores.erase(lost.scores.begin());
  EXPECT_THAT(rig.trainer->restore(lost).error().message, HasSubstr("no memory of the scale '0."));
  lost = *loaded;
  lost.scores.begin()->second.assign(17, 1.0);
  EXPECT_THAT(rig.trainer->restore(lost).error().message, HasSubstr("is not of scores."));
}

/// Rank-Aware Spectral Bounds, appendix H: a history is one step behind weights that jump, a bound of the weights not.
TEST(QuantizedForward, AWeightSpikeOverflowsAHistoryAndNoBound) {
  const Knobs spike{{"train.weight_spike_step", "3"}, {"train.weight_spike", "16"}, {"scores.start", "5"}};
  const auto overflows = [&](const char* policy) {
    Knobs knobs = scores(spike);
    knobs.emplace_back("scores.policy", policy);
    TrainRig rig(train_config(knobs));
    std::vector<bool> made;
    for (const StepReport& report : rig.steps(5)) {
      made.push_back(std::any_of(report.scores.begin(), report.scores.end(),
                                 [](const ScoreBook::StepUse& use) { return use.overflows(); }));
    }
    return made;
  };
  EXPECT_TRUE(overflows("delayed")[3]);
  EXPECT_EQ(overflows("geometry"), std::vector<bool>(5, false));
}

TEST(QuantizedForward, ForgottenScalesBeginAnew) {
  TrainRig rig(train_config(scores({{"scores.policy", "delayed"}, {"train.forget_scales_step", "2"}})));
  const std::vector<StepReport> reports = rig.steps(4);
  const double begin = reports[0].scores.front().scale;
  EXPECT_EQ(reports[2].scores.front().scale, begin);
  EXPECT_NE(reports[1].scores.front().scale, begin);
  EXPECT_NE(reports[3].scores.front().scale, begin);
}

TEST(QuantizedForward, AnEvaluationChangesNoScale) {
  const EngineConfig config = train_config(scores({{"scores.policy", "delayed"}}));
  TrainRig rig(config);
  rig.steps(2);
  const TrainState before = rig.state();
  const std::vector<std::vector<std::int32_t>> sequences{std::vector<std::int32_t>(17, 5)};
  const auto first = rig.trainer->evaluate(sequences, false);
  const auto second = rig.trainer->evaluate(sequences, false);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(rig.state().scores, before.scores);
}

}  // namespace
}  // namespace nanscope::train
