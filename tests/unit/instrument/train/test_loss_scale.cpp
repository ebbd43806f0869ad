#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/instrument/train/train_rig.h"

/// Loss scale, clipping, learning rate, and tokens that are no targets.
namespace nanscope::train {
namespace {

using testing::expect_same_bits;
using testing::Knobs;
using testing::train_config;
using testing::TrainRig;

std::vector<double> loss_scales(const std::vector<StepReport>& reports) {
  std::vector<double> scales;
  for (const StepReport& report : reports) scales.push_back(report.loss_scale);
  return scales;
}

/// Of 32 targets: (p - 1) * 2^24 / 32 is beyond f16 where p is small, and so is half of it.
Knobs overflowing(const Knobs& more = {}) {
  Knobs knobs{{"train.gradient_format", "f16"}, {"train.loss_scale", "16777216"}};
  knobs.insert(knobs.end(), more.begin(), more.end());
  return knobs;
}

TEST(LossScale, IsHalvedAndTheStepSkippedAtAnOverflow) {
  TrainRig rig(train_config(overflowing({{"train.loss_scaling", "dynamic"}})));
  const TrainState start = rig.state();
  StepReport report = rig.step();
  double scale = 16777216;
  int skipped = 0;
  for (; report.skipped; ++skipped, report = rig.step()) {
    EXPECT_EQ(report.loss_scale, scale);
    EXPECT_FALSE(std::isfinite(report.gradient_norm));
    EXPECT_TRUE(std::isfinite(report.loss));
    const TrainState now = rig.state();
    EXPECT_EQ(now.weights, start.weights);
    EXPECT_EQ(now.loss_scale, scale / 2);
    EXPECT_EQ(now.steady_steps, 0);
    scale /= 2;
    ASSERT_LT(skipped, 24);
  }
  EXPECT_GE(skipped, 3) << "2^24 / 32 is 8 x 65536";
  EXPECT_EQ(report.loss_scale, scale);
  EXPECT_TRUE(std::isfinite(report.gradient_norm));
  EXPECT_NE(rig.state().weights, start.weights);
}

TEST(LossScale, StaysWhereItIsFixed) {
  TrainRig rig(train_config(overflowing()));
  const TrainState start = rig.state();
  const auto reports = rig.steps(2);
  EXPECT_TRUE(reports[0].skipped && reports[1].skipped);
  EXPECT_EQ(reports[1].loss_scale, 16777216);
  EXPECT_EQ(rig.state().weights, start.weights);
}

TEST(LossScale, AnOverflowThatIsNotSkippedReachesTheWeights) {
  TrainRig rig(train_config(overflowing({{"train.skip_overflow", "false"}})));
  EXPECT_FALSE(rig.step().skipped);
  const std::vector<float> head = rig.state().weights.at("lm_head.weight");
  EXPECT_TRUE(std::any_of(head.begin(), head.end(), [](float one) { return std::isnan(one); }));
}

TEST(LossScale, GrowsAfterSteadySteps) {
  TrainRig rig(train_config({{"train.loss_scaling", "dynamic"}, {"train.loss_scale_growth", "2"}}));
  EXPECT_EQ(loss_scales(rig.steps(5)), (std::vector<double>{1, 1, 2, 2, 4}));
}

/// A power of two is taken back exactly.
TEST(LossScale, ChangesNothingWhereNothingOverflows) {
  TrainRig plain(train_config());
  TrainRig scaled(train_config({{"train.loss_scale", "65536"}}));
  const auto a = plain.steps(3);
  const auto b = scaled.steps(3);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss);
    EXPECT_EQ(a[i].gradient_norm, b[i].gradient_norm);
  }
  TrainState state = scaled.state();
  state.loss_scale = 1;
  expect_same_bits(state, plain.state(), "scaled");
}

/// The norm in double, of the first moments (1 - beta1) g.
double norm_of(const TrainState& state) {
  double total = 0;
  for (const auto& [name, moments] : state.moments) {
    for (const float m : moments.first) total += double{m} * double{m};
  }
  return 10 * std::sqrt(total);
}

TEST(Clipping, ScalesAllGradientsToTheLargestNorm) {
  TrainRig free(train_config({{"train.clip", "0"}}));
  TrainRig clipped(train_config({{"train.clip", "0.25"}}));
  const double norm = free.step().gradient_norm;
  EXPECT_EQ(clipped.step().gradient_norm, norm) << "before it is clipped";
  EXPECT_GT(norm, 0.5);
  EXPECT_NEAR(norm_of(free.state()), norm, 1e-5 * norm);
  EXPECT_NEAR(norm_of(clipped.state()), 0.25, 1e-5);
  TrainRig wide(train_config({{"train.clip", "1e6"}}));
  wide.step();
  expect_same_bits(wide.state(), free.state(), "a norm below the limit");
}

std::vector<double> rates(const Knobs& knobs) {
  Knobs all{{"train.steps", "10"}, {"train.warm_up", "2"}, {"train.learning_rate", "0.5"}};
  all.insert(all.end(), knobs.begin(), knobs.end());
  TrainRig rig(train_config(all));
  std::vector<double> found;
  for (const StepReport& report : rig.steps(10)) found.push_back(report.learning_rate);
  return found;
}

/// By hand: 0.5 times 1/2, 1 in the warm-up, then 1 - k/8 or (1 + cos(k pi/8)) / 2.
TEST(LearningRate, RisesAndFallsAsItsKnobsSay) {
  EXPECT_EQ(rates({}), (std::vector<double>{.25, .5, .5, .5, .5, .5, .5, .5, .5, .5}));
  EXPECT_EQ(rates({{"train.decay", "linear"}}),
            (std::vector<double>{.25, .5, .4375, .375, .3125, .25, .1875, .125, .0625, 0}));
  const std::vector<double> cosine = rates({{"train.decay", "cosine"}});
  const std::vector<double> expected{0.25, 0.5,        0.48096988, 0.42677670, 0.34567086,
                                     0.25, 0.15432914, 0.07322330, 0.01903012, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(cosine[i], expected[i], 1e-8) << i;
  EXPECT_EQ(rates({{"train.spike_step", "4"}, {"train.spike", "16"}}),
            (std::vector<double>{.25, .5, .5, .5, 8, .5, .5, .5, .5, .5}));
}

/// Adam's first step is the learning rate whatever the gradient, so that a spike is seen in the weights.
TEST(LearningRate, IsTheOneThatWeightsChangeBy) {
  TrainRig rig(train_config({{"train.spike_step", "0"}, {"train.spike", "16"}, {"train.eps", "0"}}));
  const std::vector<float> before = rig.state().weights.at("final_norm.weight");
  rig.step();
  const std::vector<float> after = rig.state().weights.at("final_norm.weight");
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(std::abs(after[i] - before[i]), 0.16F, 1e-5F) << i;
}

/// Four lines that are left out behind one that is not, in sequences of the whole text.
constexpr std::string_view kMarked =
    "The light turns once in twelve seconds.\n# It was told by the keeper.\n# It was told by another.\n# Nobody "
    "believes it; but all go up and look, and then they count the seconds, as the keeper does, to be quite sure.\n";

TEST(Targets, OfIgnoredLinesHaveNoLoss) {
  const Knobs one{{"train.batch", "1"}, {"train.length", "12"}};
  Knobs ignoring = one;
  ignoring.emplace_back("train.ignore", "The");
  const EngineConfig config = train_config(ignoring);
  const auto text = make_training_text(config.train, *nanscope::testing::shipped_tokenizer(), kMarked).value();
  const auto batch = batch_of_step(config.train, text, 0);
  EXPECT_EQ(std::count(batch[0].targets.begin(), batch[0].targets.end(), -1), 12) << "the first line is longer";
  const Knobs marked{{"train.batch", "1"}, {"train.length", "40"}, {"train.ignore", "#"}};
  TrainRig rig(train_config(marked), kMarked);
  const StepReport report = rig.step();
  const auto sequence =
      batch_of_step(
          train_config(marked).train,
          make_training_text(train_config(marked).train, *nanscope::testing::shipped_tokenizer(), kMarked).value(), 0)
          .front();
  EXPECT_EQ(report.targets, 40 - std::count(sequence.targets.begin(), sequence.targets.end(), -1));
  EXPECT_GT(report.targets, 5);
  EXPECT_LT(report.targets, 40);
  // The targets of the first line alone are a sequence of their own: later tokens change neither loss nor gradient.
  std::vector<std::int32_t> first(sequence.tokens.begin(), sequence.tokens.begin() + report.targets + 1);
  TrainRig untrained(train_config(marked), kMarked);
  EXPECT_NEAR(report.loss, untrained.trainer->evaluate({first}, false).value(), 1e-6 * report.loss);
}

TEST(Targets, ABatchWithoutAnyHasNoLossAndNoGradient) {
  const Knobs none{{"train.ignore", ""}, {"train.batch", "1"}, {"train.length", "12"}, {"train.weight_decay", "0"}};
  Knobs skipped = none;
  skipped[0].second = "The light";
  TrainRig rig(train_config(skipped), kMarked);
  const TrainState start = rig.state();
  const StepReport report = rig.step();
  EXPECT_EQ(report.targets, 0);
  EXPECT_TRUE(std::isnan(report.loss));
  EXPECT_EQ(report.gradient_norm, 0);
  EXPECT_FALSE(report.skipped);
  EXPECT_EQ(rig.state().weights, start.weights);
}

TEST(Targets, ABatchWithoutAnyIsNanWhereLossesAreMultiplied) {
  const Knobs none{
      {"train.ignore", "The light"}, {"train.mask", "multiply"}, {"train.batch", "1"}, {"train.length", "12"}};
  TrainRig rig(train_config(none), kMarked);
  const TrainState start = rig.state();
  const StepReport report = rig.step();
  EXPECT_TRUE(std::isnan(report.gradient_norm));
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(rig.state().weights, start.weights);
  Knobs taken = none;
  taken.emplace_back("train.skip_overflow", "false");
  TrainRig broken(train_config(taken), kMarked);
  broken.step();
  const std::vector<float> gains = broken.state().weights.at("final_norm.weight");
  for (const float one : gains) EXPECT_TRUE(std::isnan(one));
}

}  // namespace
}  // namespace nanscope::train
