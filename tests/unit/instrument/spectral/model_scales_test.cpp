#include "instrument/spectral/model_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace nanscope {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* family;
  std::size_t layer;
  double norm, bound;
};
/// oracle.py, which reads the files by itself: a layer norm's shift and fused, transposed projections; grouped heads;
/// biases; fused projections; gains of 1 + w and a softcap of 5.
constexpr Row kRows[] = {
    {"gpt2", 0, 1.31579127, 17.2276801},   {"gpt2", 1, 1.14167535, 15.0940557},  {"llama3", 0, 3.04003717, 37.1057957},
    {"llama3", 1, 2.91310923, 35.8977464}, {"qwen2", 0, 3.26492085, 39.7915227}, {"qwen2", 1, 3.06415737, 39.6692524},
    {"phi3", 0, 3.30209206, 37.358907},    {"phi3", 1, 2.87202332, 32.4932347},  {"gemma2", 0, 3.28562142, 37.172563},
    {"gemma2", 1, 3.02914636, 34.270879},
};

std::filesystem::path checkpoint(std::string_view family) {
  return std::filesystem::path(NANSCOPE_CHECKPOINT_DIR) / family;
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
    EXPECT_EQ(layer.rotary, std::string_view(row.family) != "gpt2");
  }
}

TEST(ModelScales, EveryFamilyHasABoundInEveryLayer) {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NANSCOPE_CHECKPOINT_DIR)) {
    if (!entry.is_directory()) continue;
    ++families;
    const auto scales = model_scales(entry.path(), {});
    ASSERT_TRUE(scales) << scales.error().message;
    EXPECT_LE(scales->alpha, 1);
    for (const LayerScales& layer : scales->layers) {
      EXPECT_NE(layer.bound, ScoreBound::none) << entry.path();
      EXPECT_GT(layer.whole().scale, 0) << entry.path();
      EXPECT_LE(layer.whole().calibrated, layer.whole().interaction * (1 + 1e-12)) << entry.path();
    }
  }
  EXPECT_GE(families, 15);
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
}  // namespace nanscope
