#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/read_text.h"
#include "tests/unit/instrument/train/train_rig.h"

/// Losses and gradient norms by PyTorch (tests/train/losses_torch.py --golden), of the knobs that the file states.
namespace nanscope::train::test_trainer {
namespace {

using testing::TrainRig;

constexpr double kRelative = 1e-4;

class TorchTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchTraining, HasTheSameLossesAndNorms) {
  const std::string source = NANSCOPE_SOURCE_DIR;
  const auto golden = nlohmann::json::parse(read_text(source + "/tests/golden/training/" + GetParam() + ".json"));
  EngineConfig config;
  for (const auto& [name, value] : golden["knobs"].items()) {
    ASSERT_TRUE(set_knob(config, name, value.get<std::string>())) << name;
  }
  TrainRig rig(config, read_text(source + "/" + config.train.text), "cpu", 2);
  ASSERT_EQ(static_cast<std::int64_t>(golden["losses"].size()), config.train.steps);
  for (std::size_t step = 0; step < golden["losses"].size(); ++step) {
    const StepReport report = rig.step();
    const auto loss = golden["losses"][step].get<double>();
    const auto norm = golden["norms"][step].get<double>();
    EXPECT_LE(std::abs(report.loss - loss), kRelative * loss) << "step " << step;
    EXPECT_LE(std::abs(report.gradient_norm - norm), kRelative * norm) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TorchTraining,
                         ::testing::Values("llama", "gpt2", "gemma", "olmo2", "post", "window-llama3", "window-linear",
                                           "yarn", "sinks", "mixtral", "qwen2-moe", "gpt-oss", "sigmoid-moe",
                                           "fp8-scores-delayed", "fp8-queries-keys", "mxfp8-inputs-weights"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nanscope::train::test_trainer
