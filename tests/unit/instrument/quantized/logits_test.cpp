// Quantized checkpoints in the engine, against the logits that transformers computes with the same weights
// (make_checkpoints.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "instrument/engine/model_folder.h"
#include "tests/unit/instrument/engine/engine_rig.h"
#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;

/// The logits of the last token of a prompt.
std::vector<float> logits_of(const std::filesystem::path& folder, const std::vector<std::int32_t>& prompt) {
  EngineConfig config;
  const Status used = use_model_folder(config, folder);
  EXPECT_TRUE(used) << (used ? "" : used.error().message);
  if (!used) return {};
  const auto device = kernels::make_device("cpu", 1).value();
  const auto source = make_weight_source(config.model).value();
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(Tokenizer::none().value()));
  const auto model = load_model(config, *device, *source, *tokenizer);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  if (!model) return {};
  const auto engine = Engine::create(config, *device, *model, tokenizer).value();
  testing::CollectProbe probe(*device);
  const auto run =
      engine->run(std::vector{RequestSpec{.name = "ids", .parts = {TokensPart{prompt}}, .max_tokens = 1}}, probe);
  EXPECT_TRUE(run);
  std::vector<float> logits;
  for (const testing::Seen& seen : probe.tensors) {
    if (seen.role == "logits") logits = seen.floats();
  }
  return logits;
}

class QuantizedModels : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantizedModels, GiveTheLogitsOfTransformers) {
  const std::filesystem::path folder = std::filesystem::path(NANSCOPE_QUANTIZED_DIR) / GetParam();
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
                                           "ct-mxfp4", "ct-mxfp8"));

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
