// Weights that change between steps, and scaling state that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/recording/weight_version.h"
#include "engine_rig.h"
#include "instrument/engine/weight_versions.h"

namespace nanscope {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Knobs;
using ::testing::Not;
using testing::Rig;

const std::vector<std::string> kQueriesAndKeys{"layers.*.q_proj.weight", "layers.*.k_proj.weight"};

std::vector<RequestSpec> the_same_three_times() {
  return std::vector<RequestSpec>(3, testing::text_request("the lamp turns above the water"));
}

Transient times(double factor, std::int64_t step, std::vector<std::string> weights = kQueriesAndKeys) {
  Transient one;
  one.step = one.until = step;
  one.size = factor;
  one.weights = std::move(weights);
  return one;
}

/// What a run tells of weights, scales and the outputs of one kind of op in layer 0.
class Watch final : public Probe {
 public:
  Watch(kernels::Device& device, std::string_view op) : device_(device), op_(op) {}
  Status on_weight(const WeightRow& row, const kernels::TensorView&) override {
    weights.push_back(row.name);
    return {};
  }
  Status on_op(const ProbeOp& op) override {
    if (op.layer != 0 || op.name != op_) return {};
    for (const ProbeInput& input : op.inputs) {
      if (input.role == "weight") read.emplace_back(input.weight);
    }
    const kernels::TensorView& view = op.outputs.front().view;
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    outputs.push_back(values);
    return device_.download(std::as_writable_bytes(std::span(outputs.back())), view.data);
  }
  Status on_scale(const ScaleRow& row) override {
    if (row.layer == 0 && row.target == "x") scales.push_back(row.scale);
    return {};
  }

  std::vector<std::string> weights, read;
  std::vector<std::vector<float>> outputs;
  std::vector<double> scales;

 private:
  kernels::Device& device_;
  std::string op_;
};

Watch watched(const EngineConfig& config, const std::vector<Transient>& transients, std::string_view op = "q_proj") {
  const Rig rig(config);
  Watch watch(*rig.device, op);
  const auto run = rig.engine->run(the_same_three_times(), transients, watch);
  EXPECT_TRUE(run) << (run ? "" : run.error().message);
  return watch;
}

std::string refused(const Knobs& knobs, const Transient& transient) {
  const Rig rig(testing::tiny_config(knobs));
  NullProbe nobody;
  const auto run = rig.engine->run(the_same_three_times(), std::vector{transient}, nobody);
  return run ? "" : run.error().message;
}

/// A model's weights, those of queries and keys four times.
class FourTimes final : public WeightSource {
 public:
  explicit FourTimes(const ModelConfig& model) : plain_(make_random_weights(model)) {}
  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override {
    auto values = plain_->tensor(name, rows, columns);
    const bool larger = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
    for (float& value : *values) value *= larger ? 4 : 1;
    return values;
  }

 private:
  std::unique_ptr<WeightSource> plain_;
};

TEST(WeightNames, AStarStandsForAnything) {
  for (const auto& [pattern, text, fits] : {std::tuple("*", "", true),
                                            {"", "", true},
                                            {"", "a", false},
                                            {"a*c", "abcbc", true},
                                            {"a*c", "abcb", false},
                                            {"*.q_proj.*", "layers.0.q_proj.weight", true},
                                            {"layers.*.q_proj.weight", "layers.11.q_proj.weight", true},
                                            {"layers.*.q_proj.weight", "layers.1.k_proj.weight", false},
                                            {"**a**", "bab", true}}) {
    EXPECT_EQ(matches(pattern, text), fits) << pattern << " " << text;
  }
}

TEST(Transients, ChangedWeightsAreThoseOfAModelThatAlwaysHadThem) {
  const EngineConfig config = testing::tiny_config();
  FourTimes larger(config.model);
  const Rig always(config, &larger);
  const std::vector<float> expected = [&] {
    Watch watch(*always.device, "scores");
    EXPECT_TRUE(always.engine->run(the_same_three_times(), watch));
    return watch.outputs[0];
  }();
  const Watch plain = watched(config, {}, "scores");
  const Watch changed = watched(config, {times(4, 2)}, "scores");
  ASSERT_EQ(changed.outputs.size(), 3U);
  EXPECT_TRUE(testing::same_bits(changed.outputs[0], plain.outputs[0]));
  EXPECT_TRUE(testing::same_bits(changed.outputs[1], expected));
  EXPECT_TRUE(testing::same_bits(changed.outputs[2], expected));
}

TEST(Transients, OpsReadTheVersionOfTheirStep) {
  const Watch watch = watched(testing::tiny_config(), {times(2, 2), times(0.5, 3, {"layers.0.q_proj.weight"})});
  EXPECT_THAT(watch.read,
              ElementsAre("layers.0.q_proj.weight", "layers.0.q_proj.weight@2", "layers.0.q_proj.weight@3"));
  EXPECT_THAT(watch.weights, Contains("layers.1.k_proj.weight@2"));
  EXPECT_THAT(watch.weights, Not(Contains("layers.1.k_proj.weight@3")));
  EXPECT_THAT(watch.weights, Not(Contains("layers.0.v_proj.weight@2")));
}

/// Nothing is new where the bits are the same.
TEST(Transients, LoadingTheSameWeightsChangesNothing) {
  Transient same;
  same.kind = TransientKind::load;
  same.step = same.until = 2;
  same.load = "random";
  const Watch watch = watched(testing::tiny_config(), {same});
  EXPECT_THAT(watch.weights, Not(Contains(HasSubstr("@"))));
  Transient other = same;
  other.seed = 9;
  EXPECT_THAT(watched(testing::tiny_config(), {other}).weights, Contains("lm_head.weight@2"));
}

TEST(Transients, AShiftIsAsLongAsItSaysAndEachStepHasItsOwn) {
  Transient shift = times(0.25, 2, {"layers.1.up_proj.weight"});
  shift.kind = TransientKind::shift;
  shift.until = 3;
  const EngineConfig config = testing::tiny_config();
  const auto at = [&](std::int64_t step) {
    return weights_at(config.model, std::vector{shift}, step)
        .value()("layers.1.up_proj.weight", config.model.mlp_width, config.model.width)
        .value();
  };
  const std::vector<float> first = at(1), second = at(2), third = at(3);
  EXPECT_EQ(at(4), third);
  const auto way = [](const std::vector<float>& from, const std::vector<float>& to) {
    double moved = 0, was = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      moved += (double{to[i]} - from[i]) * (double{to[i]} - from[i]);
      was += double{from[i]} * from[i];
    }
    return std::sqrt(moved / was);
  };
  EXPECT_NEAR(way(first, second), 0.25, 1e-6);
  EXPECT_NEAR(way(second, third), 0.25, 1e-6);
  double along = 0, length = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    along += (double{second[i]} - first[i]) * (double{third[i]} - second[i]);
    length += (double{second[i]} - first[i]) * (double{second[i]} - first[i]);
  }
  EXPECT_LT(std::abs(along) / length, 0.2);
}

/// An engine and whoever asks without one have the same bits.
TEST(Transients, WeightsAtAStepAreThoseThatTheEngineReads) {
  const EngineConfig config = testing::tiny_config();
  const Rig rig(config);
  const std::vector<Transient> all{times(3, 2), times(0.1, 2, {"layers.0.*"})};
  const auto version = next_version(*rig.model, all, 2, *rig.device).value();
  ASSERT_FALSE(version.changed.empty());
  for (const Weight* weight : version.changed) {
    const auto name = std::string(weight_of_version(weight->name));
    const auto values = weight_values(*version.model, *weight, *rig.device).value();
    const auto alone = weights_at(config.model, all, 2).value()(name, weight->view.rows, weight->view.columns).value();
    EXPECT_TRUE(testing::same_bits(values, alone)) << name;
  }
}

/// The bound is of both weights, each four times: in f32, exactly 16 times.
TEST(Transients, GeometryFollowsTheWeightsInTheSameStep) {
  const Watch watch =
      watched(testing::tiny_config({{"scores.format", "e4m3"}, {"scores.policy", "geometry"}}), {times(4, 2)});
  ASSERT_EQ(watch.scales.size(), 3U);
  EXPECT_EQ(watch.scales[1] / watch.scales[0], 16);
  EXPECT_EQ(watch.scales[2], watch.scales[1]);
}

TEST(Transients, AHistoryThatIsForgottenBeginsAnew) {
  Transient forget;
  forget.kind = TransientKind::forget_scores;
  forget.step = forget.until = 2;
  forget.start = 7;
  const Watch watch =
      watched(testing::tiny_config({{"scores.format", "e4m3"}, {"scores.policy", "delayed"}}), {forget});
  ASSERT_EQ(watch.scales.size(), 3U);
  EXPECT_FLOAT_EQ(static_cast<float>(watch.scales[0]), 1 / (0.9F * 448));
  EXPECT_FLOAT_EQ(static_cast<float>(watch.scales[1]), 7 / (0.9F * 448));
  EXPECT_NE(watch.scales[2], watch.scales[1]);
}

TEST(Transients, WhatCannotHappenIsRefused) {
  EXPECT_EQ(refused({}, times(2, 4)), "transient 0: step 4 never comes, the run has 3 at most");
  EXPECT_THAT(
      refused({}, times(2, 1, {"layers.0.q_prj.weight"})),
      HasSubstr("transient 0: no weight is called 'layers.0.q_prj.weight'; did you mean 'layers.0.q_proj.weight'"));
  EXPECT_EQ(refused({{"engine.ranks", "2"}}, times(2, 1)), "transient 0: it needs one rank, engine.ranks=1");
  Transient load = times(1, 2);
  load.kind = TransientKind::load;
  load.load = "/nowhere.safetensors";
  EXPECT_THAT(refused({}, load), HasSubstr("/nowhere.safetensors"));
}

TEST(Transients, AreReadBackFromTheirJson) {
  Transient shift = times(0.5, 3);
  shift.kind = TransientKind::shift;
  shift.until = 9;
  shift.seed = 18446744073709551615U;
  Transient load;
  load.kind = TransientKind::load;
  load.load = "random";
  load.init_scale = 2.5;
  Transient forget;
  forget.kind = TransientKind::forget_scores;
  forget.start = 2;
  const std::string text = to_json(std::vector{times(4, 2), shift, load, forget});
  const auto read = transients_from_json(text).value();
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read[1].seed, shift.seed);
  EXPECT_EQ(read[0].weights, kQueriesAndKeys);
  for (const char* wrong : {"{}", "[1]", R"([{"kind":"multiply"}])", R"([{"kind":"sing","step":1}])",
                            R"([{"kind":"shift","step":3,"until":2}])", R"([{"kind":"multiply","step":0}])",
                            R"([{"kind":"multiply","step":1,"weights":[1]}])"}) {
    EXPECT_FALSE(transients_from_json(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace nanscope
