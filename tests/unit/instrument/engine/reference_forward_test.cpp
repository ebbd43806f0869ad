/// The engine against an independent double-precision forward pass, for every shape of the model.
#include <gtest/gtest.h>

#include <cmath>

#include "double_model.h"
#include "engine_rig.h"
#include "instrument/weights/random.h"

namespace nanscope::testing {
namespace {

/// Every weight is random, gains and biases too: none may be left out unnoticed.
class EveryWeightCounts final : public WeightSource {
 public:
  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    const bool gain = name.ends_with("norm.weight");
    const bool matrix = rows > 1 && name != "embed.weight";
    fill_gaussian(values, 5, name, matrix ? 1.0F / std::sqrt(static_cast<float>(columns)) : (gain ? 0.2F : 0.5F));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (gain) values[i] += 1.0F;
      if (name.ends_with("decay")) values[i] = static_cast<float>(uniform(5, 1, i));
    }
    return values;
  }
};

struct Shape {
  std::string name;
  Knobs knobs;
};

class EveryShape : public ::testing::TestWithParam<Shape> {};

/// Rounding alone separates the two: some hundred roundings of 2^-24 a logit.
constexpr double kTolerance = 2e-5;

TEST_P(EveryShape, AgreesWithDoublePrecisionLoops) {
  const EngineConfig config = tiny_config(GetParam().knobs);
  EveryWeightCounts weights;
  Rig rig(config, &weights);
  const CollectProbe seen = rig.collect({text_request("The lamp of the lighthouse burns all night.", 3)});
  std::vector<std::int32_t> tokens = rig.result.requests[0].prompt_tokens;
  ASSERT_GT(tokens.size(), 8U);
  for (const std::int32_t token : rig.result.requests[0].output_tokens) tokens.push_back(token);
  const Matrix expected =
      DoubleModel(config, weights).logits(tokens, static_cast<std::int64_t>(shipped_tokenizer()->vocab_size()));
  double largest = 0;
  for (const double value : expected.back()) largest = std::max(largest, std::abs(value));
  std::size_t position = 0;
  for (std::int64_t step = 0; step < 3; ++step) {
    const Seen& logits = seen.find(0, step, -1, "lm_head", "logits");
    for (std::int64_t row = 0; row < logits.rows; ++row, ++position) {
      const std::vector<float> got = logits.row(row);
      for (std::size_t v = 0; v < got.size(); ++v) {
        ASSERT_NEAR(static_cast<double>(got[v]), expected[position][v], kTolerance * largest)
            << "position " << position << " token " << v;
      }
    }
  }
  EXPECT_EQ(position, tokens.size() - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Engine, EveryShape,
    ::testing::Values(
        Shape{"plain", {}}, Shape{"rms", {{"model.norm", "rms_norm"}}},
        Shape{"post", {{"model.norm_placement", "post"}}}, Shape{"sandwich", {{"model.norm_placement", "sandwich"}}},
        Shape{"inner_norm", {{"model.inner_norm", "true"}}}, Shape{"qk_norm", {{"model.qk_norm", "true"}}},
        Shape{"bias", {{"model.bias", "true"}}}, Shape{"gelu", {{"model.mlp", "gelu"}}},
        Shape{"gelu_tanh", {{"model.mlp", "gelu_tanh"}}}, Shape{"silu", {{"model.mlp", "silu"}}},
        Shape{"one_head_group", {{"model.kv_heads", "1"}}}, Shape{"other_base", {{"model.rope_base", "100"}}},
        Shape{"stretched_base", {{"rope.scaling", "dynamic"}, {"rope.factor", "2.5"}, {"rope.served", "4096"}}},
        Shape{"guarded_base", {{"rope.scaling", "dynamic"}, {"rope.factor", "2"}, {"rope.served", "512"}}},
        Shape{"recurrent", {{"model.recurrent_layers", "0"}}},
        Shape{"ragged",
              {{"model.width", "40"}, {"model.heads", "3"}, {"model.kv_heads", "3"}, {"model.mlp_width", "33"}}},
        Shape{"two_ranks", {{"engine.ranks", "2"}}},
        Shape{"four_ranks",
              {{"engine.ranks", "4"},
               {"model.kv_heads", "4"},
               {"model.recurrent_layers", "1"},
               {"model.bias", "true"},
               {"model.norm_placement", "sandwich"},
               {"model.mlp_width", "44"},
               {"allreduce.order", "tree"}}},
        Shape{"tail_skipped", {{"kv.tail", "skip"}}}, Shape{"additive", {{"attention.mask", "additive"}}},
        Shape{"multiply", {{"attention.mask", "multiply"}}}, Shape{"large_eps", {{"norm.eps", "0.5"}}}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace nanscope::testing
