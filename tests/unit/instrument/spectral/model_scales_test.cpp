#include "instrument/spectral/model_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>

#include "core/files/output_file.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/spectral/draw.h"

namespace nanscope::model_scales_test {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* family;
  std::size_t layer;
  double norm, bound, query, key;
};
/// oracle.py, which reads the files by itself: a layer norm's shift and fused, transposed projections; grouped heads;
/// biases; fused projections, half of a head rotated and amplified (LongRoPE); gains of 1 + w and a softcap of 5; YaRN.
constexpr Row kRows[] = {
    {"gpt2", 0, 1.31579127, 17.2276801, 5.7715405, 5.96911181},
    {"gpt2", 1, 1.14167535, 15.0940557, 5.88429209, 6.51912186},
    {"llama3", 0, 3.04003717, 37.1057957, 9.90431668, 9.50657486},
    {"llama3", 1, 2.91310923, 35.8977464, 9.82030716, 9.91738893},
    {"qwen2", 0, 3.26492085, 39.7915227, 10.5373295, 10.0696586},
    {"qwen2", 1, 3.06415737, 39.6692524, 10.4395068, 10.1321955},
    {"phi3", 0, 4.72953633, 53.5085953, 12.2098715, 12.5403887},
    {"phi3", 1, 4.29635944, 48.6077583, 12.3053681, 10.866104},
    {"gemma2", 0, 3.28562142, 37.172563, 9.7834754, 10.0125765},
    {"gemma2", 1, 3.02914636, 34.270879, 9.86229914, 10.6319732},
    {"gpt-oss", 0, 4.22725745, 51.9586022, 11.9296154, 11.2752352},
    {"gpt-oss", 1, 4.0489798, 50.1804892, 10.3245452, 11.6616836},
};

std::filesystem::path checkpoint(std::string_view family) {
  return std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints") / family;
}

TEST(ModelScales, AreThoseOfTheFiles) {
  for (const Row& row : kRows) {
    const auto scales = model_scales(checkpoint(row.family), {});
    ASSERT_TRUE(scales) << scales.error().message;
    ASSERT_GT(scales->layers.size(), row.layer);
    const LayerScales& layer = scales->layers[row.layer];
    EXPECT_NEAR(layer.largest_head_norm() / row.norm, 1, 1e-6) << row.family << ' ' << row.layer;
    const double bound = layer.softcap > 0 ? std::min(layer.softcap, row.bound) : row.bound;
    EXPECT_NEAR(layer.whole().interaction / bound, 1, 1e-6) << row.family << ' ' << row.layer;
    const auto largest = [](const std::vector<ElementBounds>& all) {
      double most = 0;
      for (const ElementBounds& one : all) most = std::max(most, one.worst_case);
      return most;
    };
    EXPECT_NEAR(largest(layer.queries) / row.query, 1, 1e-6) << row.family << ' ' << row.layer;
    EXPECT_NEAR(largest(layer.keys) / row.key, 1, 1e-6) << row.family << ' ' << row.layer;
    EXPECT_EQ(layer.rotary, std::string_view(row.family) != "gpt2");
  }
}

/// Families in which a rotation makes a head's norm larger than the room of its scale, as numpy's SVD of rotated heads
/// has it (1.44 times in Llama 2's tiny checkpoint, Mistral's and Gemma's, 1.19 to 1.44 in the others): heads of 8
/// channels, few enough for that. Nothing else is to be warned of in any.
const std::map<std::string, std::string> kWarned{
    {"llama2", "rotation-aligns"},     {"gemma1", "rotation-aligns"},     {"mistral", "rotation-aligns"},
    {"qwen2", "rotation-aligns"},      {"qwen2-moe", "rotation-aligns"},  {"seed-oss", "rotation-aligns"},
    {"smollm3", "rotation-aligns"},    {"starcoder2", "rotation-aligns"}, {"granite", "rotation-aligns"},
    {"granitemoe", "rotation-aligns"}, {"helium", "rotation-aligns"},     {"gpt-neox", "rotation-aligns"},
    {"cohere", "rotation-aligns"},     {"cohere2", "rotation-aligns"},    {"falcon", "rotation-aligns"}};

/// Families of latent attention, whose keys are no product of the layer's input with one weight.
const std::set<std::string> kUnbounded{"deepseek-v2", "deepseek-v3", "glm4-moe-lite"};

TEST(ModelScales, EveryFamilyHasABoundInEveryLayer) {
  int families = 0;
  std::set<std::string> warned;
  for (const auto& entry :
       std::filesystem::directory_iterator(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints")) {
    if (!entry.is_directory()) continue;
    ++families;
    const auto scales = model_scales(entry.path(), {});
    if (kUnbounded.contains(entry.path().filename().string())) {
      ASSERT_FALSE(scales);
      EXPECT_THAT(scales.error().message, ::testing::HasSubstr("latent attention")) << entry.path();
      continue;
    }
    ASSERT_TRUE(scales) << scales.error().message;
    EXPECT_LE(scales->alpha, 1);
    for (const LayerScales& layer : scales->layers) {
      EXPECT_NE(layer.bound, ScoreBound::none) << entry.path();
      const auto expected = kWarned.find(entry.path().filename().string());
      for (const ScaleWarning& warning : layer.warnings) {
        ASSERT_NE(expected, kWarned.end()) << entry.path() << ": " << warning.kind << ": " << warning.figure;
        EXPECT_EQ(warning.kind, expected->second) << entry.path();
        warned.insert(entry.path().filename().string());
      }
      EXPECT_GT(layer.whole().scale, 0) << entry.path();
      EXPECT_LE(layer.whole().calibrated, layer.whole().interaction * (1 + 1e-12)) << entry.path();
    }
  }
  EXPECT_GE(families, 15);
  EXPECT_THAT(warned, ::testing::SizeIs(kWarned.size()));
}

TEST(ModelScales, APolicyHasItsFirstScaleBeforeAnythingRan) {
  auto scales = model_scales(checkpoint("llama3"), {});
  ASSERT_TRUE(scales) << scales.error().message;
  const double geometry = scales->layers[1].heads[2].scale;
  ASSERT_TRUE(use_policy(*scales, "auto_alpha", *find_score_policy("auto_alpha"), {}));
  EXPECT_DOUBLE_EQ(scales->layers[1].heads[2].scale, geometry);
  ASSERT_TRUE(use_policy(*scales, "delayed", *find_score_policy("delayed"), {}));
  EXPECT_DOUBLE_EQ(scales->layers[1].heads[2].scale, 1 / (0.9 * 448));
  EXPECT_DOUBLE_EQ(scales->layers[0].keys[1].scale, 1 / (0.9 * 448));
  EXPECT_EQ(scales->policy, "delayed");
  EXPECT_EQ(use_policy(*scales, "current", *find_score_policy("current"), {}).error().message,
            "current has no scale before a step's scores are there: give a run");
}

/// Two query heads [A, -A] on one key head, A and W_K being the single-head draw of seed 7: side by side they cancel,
/// and each has the norm 6.70816 (numpy's SVD of the expanded matrix; vector C1 of the reading of the paper).
TEST(ModelScales, ACheckpointWhoseHeadsCancelIsWarnedOf) {
  const TemporaryFolder folder;
  Draw draw(7);
  const std::vector<float> a = draw.transposed(16, 4);
  const std::vector<float> k = draw.transposed(16, 4);
  std::vector<float> q = a;
  for (const float value : a) q.push_back(-value);
  const std::vector<float> ones(16, 1.0F);
  const std::string prefix = "model.layers.0.";
  const auto tensor = [&](const char* name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    return SafetensorsInput{prefix + name, "F32", std::move(shape), std::as_bytes(std::span(values))};
  };
  const auto bytes =
      encode_safetensors({tensor("self_attn.q_proj.weight", {8, 16}, q), tensor("self_attn.k_proj.weight", {4, 16}, k),
                          tensor("input_layernorm.weight", {16}, ones)});
  ASSERT_TRUE(bytes);
  ASSERT_TRUE(write_output(folder / "model.safetensors", *bytes));
  ASSERT_TRUE(write_output(folder / "config.json", std::string_view(R"({"model_type": "llama", "hidden_size": 16,
      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "hidden_act": "silu",
      "intermediate_size": 16, "vocab_size": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
      "tie_word_embeddings": true})")));
  const auto scales = model_scales(folder.path(), {});
  ASSERT_TRUE(scales) << scales.error().message;
  const LayerScales& layer = scales->layers.front();
  EXPECT_NEAR(layer.largest_head_norm(), 6.70816, 1e-5);
  EXPECT_NEAR(layer.settled, 0, 1e-5);
  EXPECT_THAT(layer.warnings, ::testing::Contains(::testing::Field(&ScaleWarning::kind, "layer-norm-hides-heads")));
}

TEST(ModelScales, RefusesLayersThatAreNotThereByFolder) {
  ModelScalesOptions options;
  options.layers = {2};
  const auto scales = model_scales(checkpoint("llama3"), options);
  ASSERT_FALSE(scales);
  EXPECT_THAT(scales.error().message, HasSubstr("llama3: no layer 2: the model has 0 to 1"));
  EXPECT_FALSE(model_scales(checkpoint("no-such-folder"), {}));
}

}  // namespace
}  // namespace nanscope::model_scales_test
