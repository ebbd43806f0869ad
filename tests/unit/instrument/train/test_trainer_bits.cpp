#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/numbers/codec.h"
#include "instrument/engine/model_folder.h"
#include "instrument/engine/reference_folder.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/train/train_rig.h"

/// A training run's bits depend on its configuration alone: not on the machine, not on stops.
namespace nanscope::train {
namespace {

using nanscope::testing::Knobs;
using testing::expect_same_bits;
using testing::train_config;
using testing::TrainRig;

/// The folder of a checkpoint in bf16, of the weights that `config` generates.
void write_bf16_model(const EngineConfig& config, const std::filesystem::path& folder) {
  const auto device = kernels::make_device("cpu", 1).value();
  const auto model = testing::loaded_model(config, *device);
  std::list<std::vector<std::uint16_t>> kept;
  std::vector<SafetensorsInput> tensors;
  for (const Weight& weight : model->weights) {
    std::vector<std::uint16_t>& codes = kept.emplace_back();
    const std::vector<float> values = weight_values(*model, weight, *device).value();
    for (const float value : values) {
      codes.push_back(static_cast<std::uint16_t>(encode(Format::bf16, value, Overflow::overflow)));
    }
    std::vector<std::int64_t> shape{weight.view.rows, weight.view.columns};
    if (weight.view.rows == 1) shape = {weight.view.columns};
    tensors.push_back({weight.name, "BF16", shape, std::as_bytes(std::span(codes))});
  }
  const auto text = reference_config_json(config, model->vocabulary);
  ASSERT_TRUE(text) << text.error().message;
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json") << *text;
  const std::vector<std::byte> bytes = encode_safetensors(tensors).value();
  std::ofstream(folder / "model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Every rounding that a training step can have, on a bf16 model.
EngineConfig everything_rounded(const std::filesystem::path& folder, const std::string& diagonal) {
  const Knobs shape{{"model.layers", "1"},    {"model.width", "64"},    {"model.heads", "2"},
                    {"model.kv_heads", "1"},  {"model.head_dim", "32"}, {"activation.format", "bf16"},
                    {"model.patch_size", "4"}};
  if (!std::filesystem::exists(folder)) write_bf16_model(train_config(shape), folder);
  EngineConfig config;
  const Status used = use_model_folder(config, folder);
  EXPECT_TRUE(used) << used.error().message;
  const Knobs knobs{{"train.steps", "3"},
                    {"train.batch", "2"},
                    {"train.length", "64"},
                    {"train.learning_rate", "0.01"},
                    {"train.gradient_format", "f16"},
                    {"train.loss_scale", "1024"},
                    {"train.state_format", "bf16"},
                    {"train.blocks", "mxfp4"},
                    {"train.stochastic", "true"},
                    {"train.hadamard", "true"},
                    {"attention.blocks_q", "mxfp4"},
                    {"attention.blocks_k", "mxfp4"},
                    {"attention.blocks_v", "mxfp4"},
                    {"attention.blocks_p", "mxfp4"},
                    {"attention.diagonal", diagonal}};
  for (const auto& [name, value] : knobs) EXPECT_TRUE(set_knob(config, name, value)) << name;
  return config;
}

class TrainingBits : public ::testing::TestWithParam<const char*> {
 protected:
  TemporaryFolder folder_;
};

TEST_P(TrainingBits, AreThoseOfEveryMachine) {
  const EngineConfig config = everything_rounded(folder_ / "model", GetParam());
  // A build may hold lane code of one instruction set alone (NANSCOPE_LANES).
  std::vector<std::string> machines;
  for (const char* isa : {"cpu:baseline", "cpu:avx2", "cpu:avx512"}) {
    if (kernels::make_device(isa, 1)) machines.emplace_back(isa);
  }
  ASSERT_FALSE(machines.empty());
  TrainRig first(config, testing::kText, machines[0], 1);
  const TrainState start = first.state();
  for (const StepReport& report : first.steps(3)) EXPECT_FALSE(report.skipped);
  const TrainState expected = first.state();
  EXPECT_FALSE(expected.rounded.empty());
  EXPECT_NE(expected.rounded, start.rounded);
  for (const std::string& isa : machines) {
    TrainRig rig(config, testing::kText, isa, 2);
    rig.steps(3);
    expect_same_bits(rig.state(), expected, isa);
  }
}

/// Each rounded weight is one of the two bf16 numbers beside its master weight, and not always the nearer one.
TEST(TrainingState, RoundsABf16ModelsWeightsStochastically) {
  TemporaryFolder folder;
  TrainRig rig(everything_rounded(folder / "model", "exact"));
  rig.step();
  const TrainState state = rig.state();
  double up = 0;
  double expected = 0;
  std::size_t farther = 0;
  for (const auto& [name, master] : state.weights) {
    const std::vector<float>& rounded = state.rounded.at(name);
    for (std::size_t i = 0; i < master.size(); ++i) {
      const auto low = std::bit_cast<float>(std::bit_cast<std::uint32_t>(master[i]) & 0xffff0000U);
      const auto high = std::bit_cast<float>((std::bit_cast<std::uint32_t>(master[i]) & 0xffff0000U) + 0x10000U);
      ASSERT_TRUE(rounded[i] == low || rounded[i] == high) << name << " " << i;
      const double share = (double{master[i]} - double{low}) / (double{high} - double{low});
      up += rounded[i] == high && share > 0 ? 1 : 0;
      expected += share;
      farther += (rounded[i] == high) != (share >= 0.5) ? 1 : 0;
    }
  }
  EXPECT_GT(farther, 1000U);
  EXPECT_NEAR(up / expected, 1, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Diagonal, TrainingBits, ::testing::Values("quantized", "exact"));

/// What is saved after two of five steps and restored into a trainer that was just made, goes on to the same end.
std::vector<StepReport> expect_same_after_stop(const EngineConfig& config, const std::string& what) {
  TrainRig whole(config);
  auto reports = whole.steps(5);
  TrainRig begun(config);
  begun.steps(2);
  TrainRig resumed(config);
  const Status restored = resumed.trainer->restore(begun.state());
  EXPECT_TRUE(restored) << restored.error().message;
  for (std::size_t step = 2; step < 5; ++step) {
    const StepReport report = resumed.step();
    EXPECT_EQ(report.step, static_cast<std::int64_t>(step)) << what;
    EXPECT_EQ(report.loss, reports[step].loss) << what;
    EXPECT_EQ(report.loss_scale, reports[step].loss_scale) << what;
  }
  expect_same_bits(resumed.state(), whole.state(), what);
  return reports;
}

TEST(TrainingState, GoesOnWhereItWasSaved) {
  expect_same_after_stop(train_config({{"train.order", "shuffled"}, {"train.decay", "cosine"}}), "f32");
  expect_same_after_stop(train_config({{"train.state_format", "f16"}, {"train.eps", "1e-4"}}), "f16");
  expect_same_after_stop(train_config({{"train.state_format", "bf16"}}), "bf16");
}

/// The step before the stop is the first of two that the scale grows after.
TEST(TrainingState, CountsSteadyStepsOverAStop) {
  const auto reports = expect_same_after_stop(train_config({{"train.learning_rate", "1e-5"},
                                                            {"train.gradient_format", "f16"},
                                                            {"train.loss_scaling", "dynamic"},
                                                            {"train.loss_scale", "786432"},
                                                            {"train.loss_scale_growth", "2"}}),
                                              "dynamic scale");
  const double high = 786432;
  const std::vector<double> expected{high, high / 2, high / 2, high, high};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(reports[i].loss_scale, expected[i]) << i;
}

TEST(TrainingState, OfABf16ModelHasItsRoundedWeights) {
  TemporaryFolder folder;
  expect_same_after_stop(everything_rounded(folder / "model", "exact"), "everything rounded");
}

TEST(TrainingState, OfAnotherModelIsRefused) {
  TrainRig rig(train_config());
  TrainState state = rig.state();
  state.weights.begin()->second.pop_back();
  EXPECT_NE(rig.trainer->restore(state).error().message.find(state.weights.begin()->first + ": expected"),
            std::string::npos);
  state = rig.state();
  state.moments.erase("final_norm.weight");
  EXPECT_NE(rig.trainer->restore(state).error().message.find("no weight 'final_norm.weight'"), std::string::npos);
}

}  // namespace
}  // namespace nanscope::train
