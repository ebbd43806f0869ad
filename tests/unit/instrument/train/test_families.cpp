#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "instrument/engine/model_folder.h"
#include "instrument/model/family.h"
#include "instrument/train/checkpoint.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/train/train_rig.h"

/// Checkpoints of every family of the loader, trained: losses and gradient norms are those of transformers
/// (tests/train/families_transformers.py), and what was trained is a checkpoint of the family.
namespace nanscope::train {
namespace {

namespace fs = std::filesystem;

constexpr double kRelative = 1e-4;

const nlohmann::json& golden() {
  static const auto all =
      nlohmann::json::parse(read_text(std::string(NANSCOPE_SOURCE_DIR) + "/tests/golden/training/families.json"));
  return all;
}

std::string text_of(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

class FamilyTraining : public ::testing::TestWithParam<std::string> {
 protected:
  FamilyTraining() : device_(kernels::make_device("cpu", 1).value()) {
    const Status used = use_model_folder(
        config_, fs::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints") / GetParam());
    EXPECT_TRUE(used) << used.error().message;
    set("train.order", "sequential");
    set("train.weight_decay", "0");
    for (const auto& [name, value] : golden()["train"].items()) set("train." + name, text_of(value));
  }

  void set(const std::string& name, const std::string& value) {
    const Status done = set_knob(config_, name, value);
    EXPECT_TRUE(done) << done.error().message;
  }

  /// Whether the family cannot be trained, which is then said by name.
  bool is_refused() const {
    if (config_.model.recurrent_layers.empty()) return false;
    const Status trainable = check_trainable(config_);
    EXPECT_FALSE(trainable);
    if (!trainable) {
      EXPECT_EQ(trainable.error().message, "model.recurrent_layers has recurrent layers: it cannot be trained");
    }
    return true;
  }

  std::unique_ptr<Trainer> trainer() {
    TrainingText text;
    text.tokens = golden()["text"].get<std::vector<std::int32_t>>();
    text.ignored.assign(text.tokens.size(), 0);
    auto made = Trainer::create(config_, *device_, testing::loaded_model(config_, *device_),
                                nanscope::testing::shipped_tokenizer(), std::move(text));
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }

  EngineConfig config_;
  std::unique_ptr<kernels::Device> device_;
};

TEST_P(FamilyTraining, HasTransformersLossesAndNorms) {
  if (is_refused()) return;
  const auto made = trainer();
  ASSERT_NE(made, nullptr);
  ASSERT_TRUE(golden()["families"].contains(GetParam())) << "families_transformers.py writes its losses";
  const nlohmann::json& expected = golden()["families"][GetParam()];
  NullProbe nobody;
  for (std::size_t step = 0; step < expected["losses"].size(); ++step) {
    const auto report = made->step(nobody, {});
    ASSERT_TRUE(report) << report.error().message;
    const auto loss = expected["losses"][step].get<double>();
    const auto norm = expected["norms"][step].get<double>();
    EXPECT_LE(std::abs(report->loss - loss), kRelative * loss) << "step " << step;
    EXPECT_LE(std::abs(report->gradient_norm - norm), kRelative * norm) << "step " << step;
  }
}

/// All of a family's weights but those of experts that no token chose, and biases that only choose, are changed,
/// written as the family has them, and read back.
TEST_P(FamilyTraining, LeavesACheckpointOfTheFamily) {
  if (is_refused()) return;
  const auto made = trainer();
  ASSERT_NE(made, nullptr);
  const TrainState before = made->state().value();
  NullProbe nobody;
  ASSERT_TRUE(made->step(nobody, {}));
  const TrainState after = made->state().value();
  for (const auto& [name, values] : before.weights) {
    const bool of_all = name.find(".experts.") == std::string::npos && !name.ends_with(".e_score_correction_bias");
    EXPECT_TRUE(!of_all || values != after.weights.at(name)) << name;
  }
  const TemporaryFolder folder;
  const Status saved = save_checkpoint(folder / "run", config_, *made->model(), *device_, after);
  ASSERT_TRUE(saved) << saved.error().message;
  EngineConfig opened;
  const Status used = use_model_folder(opened, folder / "run");
  ASSERT_TRUE(used) << used.error().message;
  const auto again = testing::loaded_model(opened, *device_);
  for (const Weight& weight : again->weights) {
    const std::vector<float> found = weight_values(*again, weight, *device_).value();
    const std::vector<float>& expected = after.weights.at(weight.name);
    ASSERT_EQ(found.size(), expected.size()) << weight.name;
    for (std::size_t i = 0; i < found.size(); ++i) {
      // Norms of Gemma are stored less 1, which rounds.
      ASSERT_NEAR(found[i], expected[i], 2e-7) << weight.name << " " << i;
    }
  }
}

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, FamilyTraining, ::testing::ValuesIn(checkpoints()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace nanscope::train
