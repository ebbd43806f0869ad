#include "instrument/spectral/layer_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/unit/instrument/spectral/draw.h"

namespace nanscope {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 1;
  model.width = 256;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 16;
  model.norm = kernels::NormKind::rms_norm;
  model.positions = 64;
  return model;
}

/// Gaussian projections, drawn as sums of twelve.
std::vector<float> gaussian(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  Draw draw(seed);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (float& value : values) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += draw.next();
    value = sum / 2 / std::sqrt(static_cast<float>(columns));
  }
  return values;
}

struct Weights {
  std::map<std::string, std::vector<float>, std::less<>> named;

  NamedWeights source() const {
    return [this](std::string_view name, std::int64_t rows, std::int64_t columns) -> Result<std::vector<float>> {
      const auto found = named.find(name);
      if (found == named.end()) return fail("no weight '" + std::string(name) + "'");
      if (found->second.size() != static_cast<std::size_t>(rows * columns)) return fail("another shape");
      return found->second;
    };
  }
};

Weights weights_of(const ModelConfig& model) {
  Weights weights;
  weights.named["layers.0.attn_norm.weight"].assign(static_cast<std::size_t>(model.width), 1.0F);
  weights.named["layers.0.q_proj.weight"] = gaussian(1, model.heads * model.head_dim, model.width);
  weights.named["layers.0.k_proj.weight"] = gaussian(2, model.kv_heads * model.head_dim, model.width);
  return weights;
}

ScaleSettings settings() {
  ScaleSettings chosen;
  chosen.length = 64;
  chosen.threads = 1;
  return chosen;
}

Result<LayerScales> scales(const ModelConfig& model, const Weights& weights) {
  return layer_scales(model, {}, 0, weights.source(), settings());
}

/// Queries along channel 0 nearly alone, keys along the channel that it is rotated with.
Weights aligned_by_rotation(const ModelConfig& model) {
  Weights weights = weights_of(model);
  std::vector<float>& q = weights.named["layers.0.q_proj.weight"];
  std::vector<float>& k = weights.named["layers.0.k_proj.weight"];
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t i = 0; i < 256; ++i) {
      if (row != 0) q[row * 256 + i] = 0;
      if (row != 8) k[row * 256 + i] *= row == 0 ? 0.1F : 0;
    }
  }
  return weights;
}

TEST(LayerScales, BoundsAreInOrderAndTheScaleFollows) {
  const ModelConfig model = small_model();
  const auto layer = scales(model, weights_of(model));
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_EQ(layer->bound, ScoreBound::interaction);
  EXPECT_FALSE(layer->rotary);
  EXPECT_THAT(layer->warnings, IsEmpty());
  const double alpha = smallest_alpha(tail_shape(model, 64), 1e-6);
  for (std::size_t head = 0; head < 2; ++head) {
    const HeadBounds& bounds = layer->heads[head];
    EXPECT_DOUBLE_EQ(bounds.interaction, layer->norms[head].interaction * 256 / 4);
    EXPECT_DOUBLE_EQ(bounds.calibrated, alpha * bounds.interaction);
    EXPECT_DOUBLE_EQ(bounds.scale, bounds.calibrated / (0.8 * 448));
    EXPECT_LT(bounds.interaction, bounds.naive);
  }
}

TEST(LayerScales, NormGainsAreFoldedIn) {
  const ModelConfig model = small_model();
  Weights weights = weights_of(model);
  const auto before = scales(model, weights);
  weights.named["layers.0.attn_norm.weight"].assign(256, -2.0F);
  const auto after = scales(model, weights);
  ASSERT_TRUE(before && after);
  EXPECT_DOUBLE_EQ(after->whole().interaction, 4 * before->whole().interaction);
}

/// Of a layer norm's bias: q = W (z + s) + b is W z + (W s + b).
TEST(LayerScales, ShiftOfALayerNormIsABias) {
  ModelConfig model = small_model();
  model.norm = kernels::NormKind::layer_norm;
  model.qkv_bias = true;
  Weights weights = weights_of(model);
  weights.named["layers.0.attn_norm.bias"].assign(256, 0.0F);
  weights.named["layers.0.attn_norm.bias"][3] = 2;
  weights.named["layers.0.q_proj.bias"].assign(32, 1.0F);
  weights.named["layers.0.k_proj.bias"].assign(16, 0.0F);
  const auto folded = query_key_weights(model, 0, weights.source());
  ASSERT_TRUE(folded) << folded.error().message;
  EXPECT_FLOAT_EQ(folded->q_bias[5], 1 + 2 * weights.named["layers.0.q_proj.weight"][5 * 256 + 3]);
  EXPECT_FLOAT_EQ(folded->k_bias[5], 2 * weights.named["layers.0.k_proj.weight"][5 * 256 + 3]);
}

TEST(LayerScales, QkNormBoundsScoresWhateverTheProjectionsAre) {
  ModelConfig model = small_model();
  model.qk_norm = true;
  Weights weights = weights_of(model);
  weights.named["layers.0.q_norm.weight"].assign(16, 1.5F);
  weights.named["layers.0.k_norm.weight"].assign(16, 0.5F);
  weights.named["layers.0.k_norm.weight"][7] = -2;
  const auto layer = scales(model, weights);
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_EQ(layer->bound, ScoreBound::qk_norm);
  EXPECT_DOUBLE_EQ(layer->whole().naive, 1.5 * 2 * 16 / 4);
}

TEST(LayerScales, SoftcapsCapTheBound) {
  ModelConfig model = small_model();
  model.attention_softcap = 1.25;
  const auto layer = scales(model, weights_of(model));
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->whole().naive, 1.25);
  EXPECT_LE(layer->whole().calibrated, 1.25);
}

/// Whatever rotation does to the head below, a cap under the bound holds it.
TEST(LayerScales, ASoftcapBelowTheBoundLeavesNothingToWarnOf) {
  ModelConfig model = small_model();
  model.positions = 0;
  const Weights weights = aligned_by_rotation(model);
  EXPECT_THAT(scales(model, weights)->warnings, Contains(Field(&ScaleWarning::kind, "rotation-aligns")));
  model.attention_softcap = 1e-3;
  const auto layer = scales(model, weights);
  ASSERT_TRUE(layer);
  EXPECT_THAT(layer->warnings, Not(Contains(Field(&ScaleWarning::kind, "rotation-aligns"))));
}

TEST(LayerScales, WithoutANormNothingIsPromised) {
  ModelConfig model = small_model();
  model.norm_placement = NormPlacement::branch;
  const auto layer = scales(model, weights_of(model));
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->bound, ScoreBound::none);
  EXPECT_THAT(layer->warnings, Contains(Field(&ScaleWarning::kind, "input-not-normed")));
}

TEST(LayerScales, WarnsOfHeadsThatCancel) {
  const ModelConfig model = small_model();
  Weights weights = weights_of(model);
  std::vector<float>& q = weights.named["layers.0.q_proj.weight"];
  for (std::size_t i = 0; i < q.size() / 2; ++i) q[q.size() / 2 + i] = -q[i];
  const auto layer = scales(model, weights);
  ASSERT_TRUE(layer);
  EXPECT_THAT(layer->warnings, Contains(Field(&ScaleWarning::kind, "layer-norm-hides-heads")));
}

TEST(LayerScales, WarnsOfOneIterationFromAColdStartAndNotOfFive) {
  ModelConfig model = small_model();
  model.heads = model.kv_heads = 4;
  const Weights weights = weights_of(model);
  for (const int iterations : {1, 20}) {
    ScaleSettings chosen = settings();
    chosen.iterations = iterations;
    const auto layer = layer_scales(model, {}, 0, weights.source(), chosen);
    ASSERT_TRUE(layer);
    const bool told = std::any_of(layer->warnings.begin(), layer->warnings.end(),
                                  [](const ScaleWarning& one) { return one.kind == "cold-iteration"; });
    EXPECT_EQ(told, layer->cold < 0.8 * layer->settled) << iterations;
    EXPECT_EQ(told, iterations == 1) << layer->cold << " of " << layer->settled;
  }
}

TEST(LayerScales, WarnsOfRotationsThatAlign) {
  ModelConfig model = small_model();
  model.positions = 0;
  const auto layer = scales(model, aligned_by_rotation(model));
  ASSERT_TRUE(layer);
  EXPECT_TRUE(layer->rotary);
  EXPECT_THAT(layer->warnings, Contains(Field(&ScaleWarning::kind, "rotation-aligns")));
}

TEST(LayerScales, NamesTheWeightThatIsNotFinite) {
  const ModelConfig model = small_model();
  Weights weights = weights_of(model);
  weights.named["layers.0.k_proj.weight"][300] = std::numeric_limits<float>::quiet_NaN();
  const auto layer = scales(model, weights);
  ASSERT_FALSE(layer);
  EXPECT_THAT(layer.error().message, HasSubstr("'layers.0.k_proj.weight' holds nan at element 300"));
}

/// A million scores of random tokens of norm sqrt(d).
double largest_score(const QueryKeyWeights& weights, double factor, bool same_tokens) {
  constexpr std::int64_t kTokens = 1000;
  const auto tokens = [&](std::uint64_t seed) {
    std::vector<float> x = gaussian(seed, kTokens, weights.width);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      float* const row = x.data() + t * weights.width;
      double sum = 0;
      for (std::int64_t i = 0; i < weights.width; ++i) sum += double{row[i]} * double{row[i]};
      const auto scale = static_cast<float>(std::sqrt(static_cast<double>(weights.width) / sum));
      for (std::int64_t i = 0; i < weights.width; ++i) row[i] *= scale;
    }
    return x;
  };
  const auto project = [&](const std::vector<float>& x, const std::vector<float>& rows) {
    std::vector<float> out(static_cast<std::size_t>(kTokens * weights.head_dim), 0.0F);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t r = 0; r < weights.head_dim; ++r) {
        float sum = 0;
        for (std::int64_t i = 0; i < weights.width; ++i) {
          sum += x[static_cast<std::size_t>(t * weights.width + i)] *
                 rows[static_cast<std::size_t>(r * weights.width + i)];
        }
        out[static_cast<std::size_t>(t * weights.head_dim + r)] = sum;
      }
    }
    return out;
  };
  const std::vector<float> x = tokens(11);
  const std::vector<float> q = project(x, weights.q);
  const std::vector<float> k = project(same_tokens ? x : tokens(12), weights.k);
  double largest = 0;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = same_tokens ? i : 0; j < (same_tokens ? i + 1 : kTokens); ++j) {
      float sum = 0;
      for (std::int64_t c = 0; c < weights.head_dim; ++c) {
        sum += q[static_cast<std::size_t>(i * weights.head_dim + c)] *
               k[static_cast<std::size_t>(j * weights.head_dim + c)];
      }
      largest = std::max(largest, std::abs(double{sum} * factor));
    }
  }
  return largest;
}

TEST(LayerScales, AMillionScoresOfRandomTokensStayBelowTheCalibratedBound) {
  const ModelConfig model = small_model();
  const Weights weights = weights_of(model);
  const auto layer = scales(model, weights);
  const auto projections = query_key_weights(model, 0, weights.source());
  ASSERT_TRUE(layer && projections);
  const double largest = largest_score(*projections, layer->factor, false);
  EXPECT_LT(largest, layer->heads[0].calibrated);
  EXPECT_GT(largest, layer->heads[0].calibrated / 20);  // what was drawn is no trifle beside it
}

/// Queries that are keys break the assumption that both are drawn apart: a token that meets itself is beyond the bound
/// where all directions count alike, and the weights alone tell.
TEST(LayerScales, WarnsWhereQueriesAreKeysAndTokensMeetThemselves) {
  ModelConfig model = small_model();
  model.width = 1024;
  model.heads = 1;
  model.head_dim = 64;
  Weights weights = weights_of(model);
  std::vector<float> orthonormal(64 * 1024, 0.0F);
  for (std::size_t i = 0; i < 1024; ++i) orthonormal[i / 16 * 1024 + i] = 0.25F;
  weights.named["layers.0.q_proj.weight"] = orthonormal;
  weights.named["layers.0.k_proj.weight"] = orthonormal;
  const auto layer = scales(model, weights);
  const auto projections = query_key_weights(model, 0, weights.source());
  ASSERT_TRUE(layer && projections);
  EXPECT_THAT(layer->warnings, Contains(Field(&ScaleWarning::kind, "query-like-key")));
  EXPECT_GT(largest_score(*projections, layer->factor, true), layer->heads[0].calibrated);
  EXPECT_LT(largest_score(*projections, layer->factor, false), layer->heads[0].calibrated);

  weights.named["layers.0.k_proj.weight"] = gaussian(5, 64, 1024);
  const auto apart = scales(model, weights);
  ASSERT_TRUE(apart);
  EXPECT_THAT(apart->warnings, Not(Contains(Field(&ScaleWarning::kind, "query-like-key"))));
}

}  // namespace
}  // namespace nanscope
