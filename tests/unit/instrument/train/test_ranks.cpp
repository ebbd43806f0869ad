#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/read_text.h"
#include "tests/unit/instrument/train/train_rig.h"

/// Ranks of data parallelism: shares of a step, sums of their gradients, replicas.
namespace nanscope::train {
namespace {

using nanscope::testing::CollectProbe;
using ::testing::ElementsAre;
using testing::expect_same_bits;
using testing::first_gradients;
using ::testing::HasSubstr;
using testing::Knobs;
using testing::train_config;
using testing::TrainRig;

using ::testing::Values;

constexpr double kRounding = 1e-6;  ///< of the largest element of a weight's gradient

class TrainingRanks : public ::testing::TestWithParam<const char*> {};

/// Shares of 2 and 2, of 1, 1 and 2, and of 1 each; some tokens have no target, and not as many in each share.
TEST_P(TrainingRanks, HaveTogetherTheGradientsOfOne) {
  const Knobs four{{"train.batch", "4"}, {"train.ignore", "A ship"}};
  const auto expected = first_gradients(four);
  Knobs knobs = four;
  knobs.emplace_back("train.ranks", GetParam());
  const auto found = first_gradients(knobs);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    double largest = 0;
    double off = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double{values[i]}));
      off = std::max(off, std::abs(double{values[i]} - double{found.at(name)[i]}));
    }
    EXPECT_GT(largest, 0) << name;
    EXPECT_LE(off, kRounding * largest) << name;
  }
}

/// The losses and norms that PyTorch has for the whole batch.
TEST_P(TrainingRanks, TrainAsPyTorchDoesWithoutRanks) {
  const std::string source = NANSCOPE_SOURCE_DIR;
  const auto golden = nlohmann::json::parse(read_text(source + "/tests/golden/training/llama.json"));
  EngineConfig config;
  for (const auto& [name, value] : golden["knobs"].items()) {
    ASSERT_TRUE(set_knob(config, name, value.get<std::string>())) << name;
  }
  ASSERT_GE(config.train.batch, 4);
  ASSERT_TRUE(set_knob(config, "train.ranks", GetParam()));
  TrainRig rig(config, read_text(source + "/" + config.train.text), "cpu", 2);
  for (std::size_t step = 0; step < golden["losses"].size(); ++step) {
    const StepReport report = rig.step();
    const auto loss = golden["losses"][step].get<double>();
    const auto norm = golden["norms"][step].get<double>();
    EXPECT_LE(std::abs(report.loss - loss), 1e-4 * loss) << "step " << step;
    EXPECT_LE(std::abs(report.gradient_norm - norm), 1e-4 * norm) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, TrainingRanks, Values("2", "3", "4"));

/// A run's first two steps, by rank.
struct TwoSteps {
  explicit TwoSteps(const Knobs& more) : rig(config(more)), probe(*rig.device) {
    for (int i = 0; i < 2; ++i) reports.push_back(rig.step(probe));
  }
  static EngineConfig config(const Knobs& more) {
    Knobs knobs{{"train.batch", "4"}, {"train.ranks", "2"}};
    knobs.insert(knobs.end(), more.begin(), more.end());
    return train_config(knobs);
  }
  /// A rank's first request of a step is its first sequence's, but in the optimizer's.
  std::vector<float> part(std::int64_t step, std::int64_t rank) const {
    return probe.find(4 * step + 2 * rank, 1, 0, "q_proj_grad", "dweight", rank).floats();
  }
  std::vector<float> sum(std::int64_t step, std::int64_t rank) const {
    return probe.find(4 * step, 2, 0, "q_proj_weight_all_reduce", "out", rank).floats();
  }
  std::vector<float> changed(std::int64_t step, std::int64_t rank, const std::string& weight) const {
    return probe.find(4 * step, 2, 0, weight + "_weight_adamw", "weight", rank).floats();
  }

  TrainRig rig;
  CollectProbe probe;
  std::vector<StepReport> reports;
};

std::vector<float> added(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  return sum;
}

TEST(TrainingRanksSteps, StandPhaseByPhase) {
  const TwoSteps run({});
  std::vector<std::tuple<std::int64_t, StepKind, std::int64_t, std::int64_t>> steps;
  for (const StepRow& row : run.probe.steps) steps.emplace_back(row.id, row.kind, row.rank, row.request);
  steps.resize(7);
  EXPECT_THAT(steps, ElementsAre(std::tuple(1, StepKind::forward, 0, 0), std::tuple(2, StepKind::forward, 1, 2),
                                 std::tuple(3, StepKind::backward, 0, 0), std::tuple(4, StepKind::backward, 1, 2),
                                 std::tuple(5, StepKind::optimizer, 0, 0), std::tuple(6, StepKind::optimizer, 1, 0),
                                 std::tuple(7, StepKind::forward, 0, 4)));
  EXPECT_EQ(run.rig.trainer->totals().steps, 12);
}

TEST(TrainingRanksSteps, ReplicasAreChangedByTheSumAlike) {
  const TwoSteps run({});
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::vector<float> sum = added(run.part(step, 0), run.part(step, 1));
    EXPECT_NE(run.part(step, 0), run.part(step, 1));
    for (const std::int64_t rank : {0, 1}) EXPECT_EQ(run.sum(step, rank), sum);
    for (const char* weight : {"q_proj", "k_proj"}) {
      EXPECT_EQ(run.changed(step, 0, weight), run.changed(step, 1, weight)) << weight;
    }
  }
}

TEST(TrainingRanksSteps, OneThatDoesNotWaitForASumStepsWithItsOwnGradient) {
  const TwoSteps run({{"train.unreduced_rank", "1"}, {"train.unreduced", "*.0.q_proj.weight"}, {"train.clip", "0"}});
  EXPECT_EQ(run.sum(0, 0), added(run.part(0, 0), run.part(0, 1)));
  EXPECT_EQ(run.sum(0, 1), run.part(0, 1));
  EXPECT_NE(run.changed(0, 0, "q_proj"), run.changed(0, 1, "q_proj"));
  EXPECT_EQ(run.changed(0, 0, "k_proj"), run.changed(0, 1, "k_proj")) << "what is summed is changed alike";
  const TwoSteps healthy(Knobs{{"train.clip", "0"}});
  EXPECT_EQ(run.part(1, 0), healthy.part(1, 0));
  EXPECT_NE(run.part(1, 1), healthy.part(1, 1)) << "its next forward pass reads its own weights";
}

TEST(TrainingRanksSteps, GoOnWhereTheyWereSaved) {
  const EngineConfig config = TwoSteps::config({{"train.stochastic", "true"}, {"train.blocks", "mxfp8"}});
  TrainRig whole(config);
  whole.steps(4);
  TrainRig first(config);
  first.steps(2);
  TrainRig second(config);
  ASSERT_TRUE(second.trainer->restore(first.state()));
  second.steps(2);
  expect_same_bits(second.state(), whole.state(), "two and two");
}

TEST(TrainingRanksSteps, AreRefusedWhereThereIsNothingForThem) {
  EXPECT_THAT(check_trainable(train_config({{"train.ranks", "3"}})).error().message,
              HasSubstr("train.ranks=3 is more than the sequences of a step, train.batch=2"));
  EXPECT_THAT(check_trainable(train_config({{"train.ranks", "2"}, {"train.unreduced_rank", "2"}})).error().message,
              HasSubstr("train.unreduced_rank=2 is no rank; train.ranks is 2"));
}

}  // namespace
}  // namespace nanscope::train
