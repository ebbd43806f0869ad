#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/engine/knobs.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/weight_source.h"
#include "instrument/train/trainer.h"
#include "kernels/device.h"
#include "tests/unit/instrument/engine/engine_rig.h"

namespace nanscope::train::testing {

using nanscope::testing::Knobs;

/// Three sentences, from which sequences of up to 64 tokens can be taken.
constexpr std::string_view kText =
    "The light turns once in twelve seconds, and the keeper counts them all, night after night, until the morning.\n"
    "A ship comes in at noon with salt, rope and letters; the harbour master weighs the salt and reads the letters.\n"
    "In winter the sea takes a little of the wall, and in summer the keeper puts it back, stone upon stone.\n";

/// tiny_config() with two sequences of 16 tokens a step, taken one behind the other, and a constant learning rate.
inline EngineConfig train_config(const Knobs& changes = {}) {
  Knobs knobs{{"model.patch_size", "0"}, {"train.steps", "4"},          {"train.batch", "2"},
              {"train.length", "16"},    {"train.order", "sequential"}, {"train.learning_rate", "0.01"}};
  knobs.insert(knobs.end(), changes.begin(), changes.end());
  return nanscope::testing::tiny_config(knobs);
}

inline std::shared_ptr<const LoadedModel> loaded_model(const EngineConfig& config, kernels::Device& device) {
  const auto source = make_weight_source(config.model);
  EXPECT_TRUE(source) << source.error().message;
  const std::int64_t vocabulary = config.model.vocabulary > 0 ? config.model.vocabulary : 512;
  auto model = load_model(config, device, **source, vocabulary);
  EXPECT_TRUE(model) << model.error().message;
  return *model;
}

/// A trainer with the device and the model that it needs.
struct TrainRig {
  explicit TrainRig(const EngineConfig& config, std::string_view text = kText, const std::string& name = "cpu",
                    int threads = 1)
      : device(kernels::make_device(name, threads).value()) {
    const auto tokenizer = nanscope::testing::shipped_tokenizer();
    auto tokens = make_training_text(config.train, *tokenizer, text);
    EXPECT_TRUE(tokens) << tokens.error().message;
    auto made = Trainer::create(config, *device, loaded_model(config, *device), tokenizer, std::move(*tokens));
    EXPECT_TRUE(made) << made.error().message;
    trainer = std::move(*made);
  }

  StepReport step() {
    NullProbe nobody;
    return step(nobody);
  }
  StepReport step(Probe& probe) {
    auto report = trainer->step(probe, {});
    EXPECT_TRUE(report) << report.error().message;
    return report.value_or(StepReport{});
  }
  std::vector<StepReport> steps(int count) {
    std::vector<StepReport> reports;
    for (int i = 0; i < count; ++i) reports.push_back(step());
    return reports;
  }
  TrainState state() { return trainer->state().value(); }

  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<Trainer> trainer;
};

/// What two runs that went the same way have in common, in every bit.
inline void expect_same_bits(const TrainState& a, const TrainState& b, const std::string& what) {
  using nanscope::testing::same_bits;
  EXPECT_EQ(a.step, b.step) << what;
  EXPECT_EQ(a.loss_scale, b.loss_scale) << what;
  EXPECT_EQ(a.steady_steps, b.steady_steps) << what;
  ASSERT_EQ(a.weights.size(), b.weights.size()) << what;
  ASSERT_EQ(a.rounded.size(), b.rounded.size()) << what;
  for (const auto& [name, values] : a.weights) {
    EXPECT_TRUE(same_bits(values, b.weights.at(name))) << what << ": " << name;
    EXPECT_TRUE(same_bits(a.moments.at(name).first, b.moments.at(name).first)) << what << ": m of " << name;
    EXPECT_TRUE(same_bits(a.moments.at(name).second, b.moments.at(name).second)) << what << ": v of " << name;
  }
  for (const auto& [name, values] : a.rounded) EXPECT_TRUE(same_bits(values, b.rounded.at(name))) << what << name;
}

/// Gradients of a run's first step by weight, unscaled: with beta1 = 0 AdamW's first moment is the gradient itself.
inline std::map<std::string, std::vector<float>> first_gradients(Knobs changes, std::string_view text = kText) {
  for (const auto& [name, value] : Knobs{{"train.beta1", "0"}, {"train.clip", "0"}, {"train.learning_rate", "0"}}) {
    changes.emplace_back(name, value);
  }
  TrainRig rig(train_config(changes), text);
  rig.step();
  std::map<std::string, std::vector<float>> gradients;
  TrainState state = rig.state();
  for (auto& [name, moments] : state.moments) gradients[name] = std::move(moments.first);
  return gradients;
}

}  // namespace nanscope::train::testing
