// Attention's scores in fp8: what is stored, what the softmax reads, and whose scale it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/files/output_file.h"
#include "core/numbers/codec.h"
#include "engine_rig.h"
#include "instrument/engine/weight_source.h"
#include "instrument/spectral/scale_file.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using testing::CollectProbe;
using testing::Knobs;
using testing::Seen;

CollectProbe scored(Knobs knobs, int max_tokens = 4) {
  knobs.emplace_back("scores.format", "e4m3");
  return testing::collect(testing::tiny_config(knobs),
                          {testing::text_request("the lamp turns above the water", max_tokens)});
}

const ScaleRow& ledger(const CollectProbe& probe, std::int64_t step, std::int64_t layer, std::string_view target = "x",
                       std::string_view op = "scores_quantise") {
  for (const ScaleRow& row : probe.scales) {
    const bool of_op = row.op > 0 && probe.ops[static_cast<std::size_t>(row.op) - 1] == op;
    if (of_op && row.target == target && row.step == step && row.layer == layer) return row;
  }
  ADD_FAILURE() << "no scale of scores in step " << step;
  return probe.scales.front();
}

double absmax(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

TEST(ScoreBook, TheSoftmaxReadsCodesTimesTheScale) {
  const CollectProbe probe = scored({{"scores.policy", "current"}});
  const std::vector<float> scores = probe.find(0, 0, 1, "scores", "out").floats();
  const Seen& codes = probe.find(0, 0, 1, "scores_quantise", "codes");
  const std::vector<float> read = probe.find(0, 0, 1, "scores_dequantise", "out").floats();
  const float scale = probe.find(0, 0, 1, "scores_quantise", "scale").floats().front();
  EXPECT_EQ(codes.format, Format::e4m3);
  EXPECT_EQ(scale, static_cast<float>(absmax(scores) / 448));
  EXPECT_EQ(ledger(probe, 1, 1).scale, double{scale});
  EXPECT_NEAR(ledger(probe, 1, 1).headroom, 1, 1e-6);
  ASSERT_EQ(read.size(), scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::uint32_t code = encode(Format::e4m3, scores[i] / scale, Overflow::saturate);
    ASSERT_EQ(static_cast<std::uint32_t>(codes.bytes[i]), code) << i;
    ASSERT_EQ(read[i], decode(Format::e4m3, code) * scale) << i;
  }
}

/// Weights that were just loaded have no history: it begins as one score of 1.
TEST(ScoreBook, DelayedScalesStandForNothingAtFirstAndForTheStepsBeforeFromThenOn) {
  const CollectProbe probe = scored({{"scores.policy", "delayed"}, {"model.init_scale", "4"}});
  const ScaleRow& first = ledger(probe, 1, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(first.scale), 1 / (0.9F * 448));
  EXPECT_EQ(first.source, ScaleSource::fixed);
  const double largest = absmax(probe.find(0, 0, 0, "scores", "out").floats());
  ASSERT_GT(largest, 2);
  EXPECT_LT(first.headroom, 1);
  EXPECT_EQ(absmax(probe.find(0, 0, 0, "scores_dequantise", "out").floats()),
            double{448 * static_cast<float>(first.scale)});
  const ScaleRow& second = ledger(probe, 2, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(second.scale), static_cast<float>(largest / (0.9F * 448)));
  EXPECT_EQ(second.source, ScaleSource::calibrated);
  EXPECT_EQ(second.calibrated_step, 1);
  EXPECT_EQ(second.calibrated_absmax, largest);
}

TEST(ScoreBook, GeometryHasItsScaleFromTheWeightsBeforeAnythingRan) {
  const CollectProbe small = scored({{"scores.policy", "geometry"}});
  const CollectProbe large = scored({{"scores.policy", "geometry"}, {"model.init_scale", "4"}});
  for (const CollectProbe* probe : {&small, &large}) {
    for (std::int64_t step = 1; step <= 4; ++step) {
      const ScaleRow& row = ledger(*probe, step, 1);
      EXPECT_EQ(row.source, ScaleSource::checkpoint);
      EXPECT_GT(row.headroom, 1.25) << "the calibrated bound takes 80 % of the format";
      EXPECT_EQ(row.scale, ledger(*probe, 1, 1).scale);
    }
  }
  EXPECT_NEAR(ledger(large, 1, 1).scale / ledger(small, 1, 1).scale, 16, 1e-4);
}

TEST(ScoreBook, NothingIsQuantizedUnlessAsked) {
  const CollectProbe probe = testing::collect(testing::tiny_config(), {testing::text_request("water")});
  EXPECT_THAT(probe.ops, ::testing::Not(::testing::Contains("scores_quantise")));
}

/// Columns of one head of a matrix whose rows are its heads side by side.
std::vector<float> of_head(const std::vector<float>& values, std::int64_t heads, std::int64_t head,
                           std::int64_t columns) {
  std::vector<float> own;
  const std::int64_t width = columns / heads;
  for (std::size_t row = 0; row * static_cast<std::size_t>(columns) < values.size(); ++row) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(row) * columns + head * width;
    own.insert(own.end(), first, first + width);
  }
  return own;
}

TEST(ScoreBook, EachHeadHasItsOwnScaleWhereItIsAskedFor) {
  const CollectProbe probe = scored({{"scores.policy", "current"}, {"scores.per", "head"}});
  const Seen& scores = probe.find(0, 0, 1, "scores", "out");
  const Seen& codes = probe.find(0, 0, 1, "scores_quantise", "codes");
  const Seen& scale = probe.find(0, 0, 1, "scores_quantise", "scale");
  const std::vector<float> read = probe.find(0, 0, 1, "scores_dequantise", "out").floats();
  ASSERT_EQ(scale.rows, 1);
  ASSERT_EQ(scale.columns, 4);
  for (std::int64_t head = 0; head < 4; ++head) {
    const std::vector<float> own = of_head(scores.floats(), 4, head, scores.columns);
    const float used = scale.floats()[static_cast<std::size_t>(head)];
    EXPECT_EQ(used, static_cast<float>(absmax(own) / 448)) << head;
    const ScaleRow& row = ledger(probe, 1, 1, "x[" + std::to_string(head) + "]");
    EXPECT_EQ(row.scale, double{used});
    EXPECT_EQ(row.absmax, absmax(own));
    EXPECT_NEAR(row.headroom, 1, 1e-6);
    const std::vector<float> back = of_head(read, 4, head, scores.columns);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::uint32_t code = encode(Format::e4m3, own[i] / used, Overflow::saturate);
      ASSERT_EQ(back[i], decode(Format::e4m3, code) * used) << head << ' ' << i;
    }
  }
  EXPECT_EQ(codes.columns, scores.columns);
}

CollectProbe with_codes_of_q_and_k(Knobs knobs) {
  knobs.emplace_back("scores.qk_format", "e4m3");
  return testing::collect(testing::tiny_config(knobs), {testing::text_request("the lamp turns above the water", 3)});
}

/// By plain loops in double over what was read back: scores are of codes times scales, of the key head that each query
/// head has.
TEST(ScoreBook, ScoresAreOfQueriesAndKeysAsTheirCodesHaveThem) {
  for (const char* per : {"layer", "head"}) {
    const CollectProbe probe = with_codes_of_q_and_k({{"scores.per", per}});
    const std::vector<float> x = probe.find(0, 0, 0, "q_rope", "out").floats();
    const std::vector<float> q = probe.find(0, 0, 0, "q_dequantise", "out").floats();
    const Seen& keys = probe.find(0, 0, 0, "k_dequantise", "out");
    const std::vector<float> k = keys.floats();
    const std::vector<float> q_scale = probe.find(0, 0, 0, "q_quantise", "scale").floats();
    EXPECT_EQ(q_scale.size(), per == std::string_view("head") ? 4U : 1U);
    EXPECT_EQ(probe.find(0, 0, 0, "k_quantise", "scale").floats().size(), q_scale.size() == 4 ? 2U : 1U);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float used = q_scale[q_scale.size() == 4 ? i % 32 / 8 : 0];
      ASSERT_EQ(q[i], decode(Format::e4m3, encode(Format::e4m3, x[i] / used, Overflow::saturate)) * used) << i;
    }
    const Seen& scores = probe.find(0, 0, 0, "scores", "out");
    const auto count = static_cast<std::size_t>(keys.rows);
    for (std::size_t t = 0; t < static_cast<std::size_t>(scores.rows); ++t) {
      for (std::size_t head = 0; head < 4; ++head) {
        for (std::size_t key = 0; key < count; ++key) {
          double sum = 0;
          double size = 0;
          for (std::size_t c = 0; c < 8; ++c) {
            const double term = double{q[t * 32 + head * 8 + c]} * double{k[key * 16 + head / 2 * 8 + c]};
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(scores.floats()[(t * 4 + head) * count + key], sum / std::sqrt(8.0), 1e-6 * size) << per;
        }
      }
    }
  }
}

TEST(ScoreBook, PoliciesOfQueriesAndKeysLookAtTheContextAlone) {
  const CollectProbe delayed = with_codes_of_q_and_k({{"scores.qk_policy", "delayed"}, {"scores.per", "head"}});
  EXPECT_FLOAT_EQ(static_cast<float>(ledger(delayed, 1, 0, "x[0]", "k_quantise").scale), 1 / (0.9F * 448));
  const Seen& keys = delayed.find(0, 0, 0, "kv_read", "k_read");
  const std::vector<float> first = of_head(keys.floats(), 2, 0, keys.columns);
  const ScaleRow& second = ledger(delayed, 2, 0, "x[0]", "k_quantise");
  EXPECT_EQ(second.calibrated_absmax, absmax(first));
  EXPECT_EQ(second.calibrated_tokens, delayed.steps.front().tokens);
  EXPECT_LT(second.calibrated_tokens, keys.rows) << "a block that is not full";
}

TEST(ScoreBook, GeometryOfQueriesAndKeysHolds) {
  const CollectProbe small = with_codes_of_q_and_k({{"scores.qk_policy", "geometry"}, {"scores.per", "head"}});
  const CollectProbe large =
      with_codes_of_q_and_k({{"scores.qk_policy", "geometry"}, {"scores.per", "head"}, {"model.init_scale", "4"}});
  for (const char* op : {"q_quantise", "k_quantise"}) {
    const ScaleRow& before = ledger(small, 1, 1, "x[1]", op);
    const ScaleRow& after = ledger(large, 1, 1, "x[1]", op);
    EXPECT_EQ(before.source, ScaleSource::checkpoint);
    EXPECT_GT(before.headroom, 1.25) << "the bound takes 80 % of the format";
    EXPECT_GT(after.headroom, 1.25);
    EXPECT_LT(after.headroom, 20);
    EXPECT_NEAR(after.scale / before.scale, 4, 1e-5);
  }
}

/// The scales of a configuration's weights, in a file.
std::string scale_file(const TemporaryFolder& folder, const Knobs& knobs) {
  const EngineConfig config = testing::tiny_config(knobs);
  const auto source = make_weight_source(config.model).value();
  const NamedWeights weights = [&](std::string_view name, std::int64_t rows, std::int64_t columns) {
    return source->tensor(name, rows, columns);
  };
  ModelScales scales;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    scales.layers.push_back(layer_scales(config.model, config.rope, layer, weights, {}).value());
  }
  const std::string path = folder / "scales.safetensors";
  EXPECT_TRUE(write_output(path, encode_scale_file(scales, "tiny", "geometry").value()));
  return path;
}

TEST(ScoreBook, TakesScalesOfAFileForItsOwnWeights) {
  const TemporaryFolder folder;
  const std::string path = scale_file(folder, {});
  const ScaleFile file = read_scale_file(path, testing::tiny_config().model).value();
  const Knobs knobs{{"scores.policy", "static"},  {"scores.qk_policy", "static"}, {"scores.format", "e4m3"},
                    {"scores.qk_format", "e4m3"}, {"scores.scales", path},        {"scores.per", "head"}};
  const CollectProbe probe = testing::collect(testing::tiny_config(knobs), {testing::text_request("water")});
  const FiledLayer& layer = file.layers[1];
  EXPECT_EQ(probe.find(0, 0, 1, "scores_quantise", "scale").floats(), layer.scores);
  EXPECT_EQ(probe.find(0, 0, 1, "q_quantise", "scale").floats(), layer.queries);
  EXPECT_EQ(probe.find(0, 0, 1, "k_quantise", "scale").floats(), layer.keys);
  EXPECT_EQ(ledger(probe, 1, 1, "x[2]").source, ScaleSource::checkpoint);
  EXPECT_TRUE(ledger(probe, 1, 1, "x[2]").locked);

  Knobs layered = knobs;
  layered.emplace_back("scores.per", "layer");
  const CollectProbe one = testing::collect(testing::tiny_config(layered), {testing::text_request("water")});
  EXPECT_EQ(one.find(0, 0, 1, "scores_quantise", "scale").floats().front(),
            *std::max_element(layer.scores.begin(), layer.scores.end()));

  Knobs other = knobs;
  other.emplace_back("model.init_scale", "4");
  testing::Rig swapped(testing::tiny_config(other));
  NullProbe nobody;
  const auto refused = swapped.engine->run(std::vector<RequestSpec>{testing::text_request("water")}, nobody);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("layer 0: scales of other weights, of checkpoint 'tiny'"));
  other.emplace_back("scores.scales_of", "any");
  const CollectProbe taken = testing::collect(testing::tiny_config(other), {testing::text_request("water")});
  EXPECT_LT(ledger(taken, 1, 1, "x[2]").headroom, ledger(probe, 1, 1, "x[2]").headroom / 8);
}

TEST(ScoreBook, IsRefusedByName) {
  EXPECT_EQ(check(testing::tiny_config({{"scores.format", "e4m3"}, {"engine.ranks", "2"}})).error().message,
            "scores.format needs one rank");
  EXPECT_EQ(check(testing::tiny_config({{"scores.qk_format", "e4m3"}, {"attention.fused", "true"}})).error().message,
            "scores.qk_format and attention.fused do not go together: fused attention reads codes of the cache");
  testing::Rig rig(testing::tiny_config(
      {{"scores.format", "e4m3"}, {"scores.policy", "static"}, {"scores.scales", "/nowhere/scales.safetensors"}}));
  NullProbe nobody;
  const auto run = rig.engine->run(std::vector<RequestSpec>{testing::text_request("water")}, nobody);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, ::testing::StartsWith("scores.scales: /nowhere/scales.safetensors"));
}

}  // namespace
}  // namespace nanscope
