// Quantized checkpoints in the engine, against the logits that transformers computes with the same weights
// (make_checkpoints.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "instrument/engine/compare_models.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/model_folder.h"
#include "tests/unit/instrument/engine/engine_rig.h"
#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;

/// The weights of a checkpoint decoded when they are loaded: what products that read codes and scales must agree with.
class DecodedWeights final : public WeightSource {
 public:
  explicit DecodedWeights(std::unique_ptr<WeightSource> from) : from_(std::move(from)) {}
  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override {
    return from_->tensor(name, rows, columns);
  }

 private:
  std::unique_ptr<WeightSource> from_;
};

struct Ran {
  std::vector<std::vector<float>> logits;  ///< of each step
  std::size_t scaled = 0;                  ///< weights that are codes and scales
};

/// A prompt and the tokens that follow it.
Ran run(const std::filesystem::path& folder, const std::vector<std::int32_t>& prompt, int tokens, bool decoded = false,
        const std::string& on = "cpu", int ranks = 1, ActivationBlocks blocks = ActivationBlocks::none) {
  EngineConfig config;
  const Status used = use_model_folder(config, folder);
  EXPECT_TRUE(used) << (used ? "" : used.error().message);
  if (!used) return {};
  config.ranks.count = ranks;
  config.blocks = {};
  config.blocks.format = blocks;
  config.blocks.ops = BlockOps::linears;
  config.blocks.tensor_scale = 0.01F;
  const auto device = kernels::make_device(on, 1).value();
  auto source = make_weight_source(config.model).value();
  if (decoded) source = std::make_unique<DecodedWeights>(std::move(source));
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(Tokenizer::none().value()));
  const auto model = load_model(config, *device, *source, *tokenizer);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  if (!model) return {};
  const auto engine = Engine::create(config, *device, *model, tokenizer).value();
  testing::CollectProbe probe(*device);
  const auto done =
      engine->run(std::vector{RequestSpec{.name = "ids", .parts = {TokensPart{prompt}}, .max_tokens = tokens}}, probe);
  EXPECT_TRUE(done) << (done ? "" : done.error().message);
  Ran ran;
  for (const testing::Seen& seen : probe.tensors) {
    if (seen.role == "logits") ran.logits.push_back(seen.floats());
  }
  for (const Weight& weight : (*model)->weights) ran.scaled += weight.scaled.given() ? 1 : 0;
  return ran;
}

/// The logits of a prompt.
std::vector<float> logits_of(const std::filesystem::path& folder, const std::vector<std::int32_t>& prompt) {
  Ran ran = run(folder, prompt, 1);
  return ran.logits.empty() ? std::vector<float>() : ran.logits.back();
}

class QuantizedModels : public ::testing::TestWithParam<const char*> {
 protected:
  /// Products whose weights are read as they are stored: all of a Llama's layer; of gpt-oss those of its experts.
  static std::size_t products() { return std::string_view(GetParam()) == "gpt-oss-mxfp4" ? 12 : 7; }
};

TEST_P(QuantizedModels, ReadAsTheyAreStoredGiveEveryBitOfDecodedOnes) {
  const std::filesystem::path folder =
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam();
  const std::vector<std::int32_t> prompt{5, 3, 8, 1, 2};
  const Ran expected = run(folder, prompt, 4, true);
  EXPECT_EQ(expected.scaled, 0U);
  const auto expect_same = [&](const Ran& found) {
    EXPECT_EQ(found.scaled, products());
    ASSERT_EQ(found.logits.size(), expected.logits.size());
    for (std::size_t step = 0; step < expected.logits.size(); ++step) {
      ASSERT_EQ(found.logits[step].size(), expected.logits[step].size());
      EXPECT_EQ(std::memcmp(found.logits[step].data(), expected.logits[step].data(),
                            expected.logits[step].size() * sizeof(float)),
                0)
          << "step " << step;
    }
  };
  expect_same(run(folder, prompt, 4));
  // Sanitizers' builds have the instructions of this machine alone.
  if (kernels::make_device("cpu:baseline", 1)) expect_same(run(folder, prompt, 4, false, "cpu:baseline"));
}

TEST_P(QuantizedModels, AreMultipliedWithQuantizedInputs) {
  const std::filesystem::path folder =
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam();
  const std::vector<std::int32_t> prompt{5, 3, 8};
  const Ran plain = run(folder, prompt, 2);
  for (const ActivationBlocks blocks : {ActivationBlocks::mxfp8, ActivationBlocks::nvfp4}) {
    const Ran expected = run(folder, prompt, 2, true, "cpu", 1, blocks);
    const Ran found = run(folder, prompt, 2, false, "cpu", 1, blocks);
    ASSERT_FALSE(found.logits.empty());
    EXPECT_EQ(found.scaled, products());
    EXPECT_EQ(found.logits, expected.logits);
    EXPECT_NE(found.logits.front(), plain.logits.front());
  }
}

/// Tensor cores make products of weights that are numbers: of codes and scales they are not made by another kernel.
TEST_P(QuantizedModels, AreRefusedByTensorCores) {
  EngineConfig config;
  ASSERT_TRUE(use_model_folder(
      config, std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam()));
  config.blocks = {};
  config.kernel_form = KernelForm::tensor_core;
  const auto device = kernels::make_device("cpu", 1).value();
  const auto source = make_weight_source(config.model).value();
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(Tokenizer::none().value()));
  const auto model = load_model(config, *device, *source, *tokenizer).value();
  const auto engine = Engine::create(config, *device, model, tokenizer);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("engine.kernel_form=tensor_core reads weights of f32, f16 and bf16"),
            std::string::npos)
      << engine.error().message;
}

TEST_P(QuantizedModels, AreCutForRanksWhereTheyLie) {
  const std::filesystem::path folder =
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam();
  const Ran expected = run(folder, {5, 3, 8}, 2, true, "cpu", 2);
  const Ran found = run(folder, {5, 3, 8}, 2, false, "cpu", 2);
  ASSERT_FALSE(expected.logits.empty());
  EXPECT_EQ(found.logits, expected.logits);
}

TEST_P(QuantizedModels, GiveTheLogitsOfTransformers) {
  const std::filesystem::path folder =
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam();
  const auto json = nlohmann::json::parse(read_text(folder / "expected.json"));
  const auto expected = json["logits"].get<std::vector<double>>();
  std::vector<float> logits = logits_of(folder, json["prompt"].get<std::vector<std::int32_t>>());
  ASSERT_GE(logits.size(), expected.size());
  logits.erase(logits.begin(), logits.end() - static_cast<std::ptrdiff_t>(expected.size()));
  double worst = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(double{logits[i]} - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  std::printf("%-16s %.2e of the largest logit\n", GetParam(), worst / largest);
  EXPECT_LE(worst, 1e-5 * largest);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedModels,
                         ::testing::Values("fp8-block", "fp8-tensor", "ct-fp8-tensor", "ct-fp8-channel", "ct-nvfp4",
                                           "ct-mxfp4", "ct-mxfp8", "gpt-oss-mxfp4"));

class QuantizedInputs : public ::testing::TestWithParam<const char*> {};

/// make_input_logits.py: compressed-tensors' own quantization of inputs, or torch's cast, under the scales that the
/// checkpoint fixes.
TEST_P(QuantizedInputs, GiveTheLogitsOfCompressedTensors) {
  const std::filesystem::path folder =
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam();
  const auto json = nlohmann::json::parse(read_text(folder / "../../input_logits.json"));
  const auto expected = json[GetParam()].get<std::vector<double>>();
  const auto logits = logits_of_checkpoint(folder, json["prompt"].get<std::vector<std::int32_t>>(), {});
  ASSERT_TRUE(logits) << logits.error().message;
  const std::span<const float> last = std::span(*logits).last(expected.size());
  const std::vector<float> as_floats = logits_of(folder, json["prompt"].get<std::vector<std::int32_t>>());
  double worst = 0;
  double largest = 0;
  double quantized = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(last[i])) << i;
    worst = std::max(worst, std::abs(double{last[i]} - expected[i]));
    quantized = std::max(quantized, std::abs(double{as_floats[as_floats.size() - expected.size() + i]} - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  std::printf("%-16s %.2e of the largest logit; inputs as they are: %.2e\n", GetParam(), worst / largest,
              quantized / largest);
  EXPECT_LE(worst, 1e-5 * largest);
  EXPECT_GT(quantized, 5e-3 * largest);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedInputs, ::testing::Values("ct-nvfp4", "modelopt-nvfp4", "ct-fp8-tensor"));

/// Products that the checkpoint leaves as floats, or has no scale of inputs for, read their inputs as they are.
TEST(QuantizedInput, WhereThereIsNoScaleIsReadAsItIs) {
  EditedCheckpoint checkpoint("ct-nvfp4");
  const std::vector<std::int32_t> prompt{5, 3, 8};
  const auto of = [&] { return logits_of_checkpoint(checkpoint.write(), prompt, {}).value(); };
  const std::vector<float> all = of();
  checkpoint.tensors.erase("model.layers.0.mlp.down_proj.input_global_scale");
  const std::vector<float> but_one = of();
  EXPECT_NE(but_one, all);
  for (const std::string& name : checkpoint.ending(".input_global_scale")) checkpoint.tensors.erase(name);
  EXPECT_NE(of(), but_one);
  EXPECT_EQ(of(), run(checkpoint.write(), prompt, 1).logits.front());
  checkpoint.set("model.layers.0.mlp.down_proj.input_global_scale", {2}, {1, 2});
  EXPECT_THAT(logits_of_checkpoint(checkpoint.write(), prompt, {}).error().message,
              HasSubstr("input_global_scale' has shape [2], expected one number"));
}

TEST(QuantizedModel, WhatDoesNotFitIsNamed) {
  EditedCheckpoint checkpoint("fp8-block");
  checkpoint.tensors.erase("model.layers.0.mlp.up_proj.weight_scale_inv");
  EngineConfig config;
  ASSERT_TRUE(use_model_folder(config, checkpoint.write()));
  const auto device = kernels::make_device("cpu", 1).value();
  const auto source = make_weight_source(config.model).value();
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(Tokenizer::none().value()));
  const auto model = load_model(config, *device, *source, *tokenizer);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("'model.layers.0.mlp.up_proj.weight' is F8_E4M3 without a scale"));
}

}  // namespace
}  // namespace nanscope
