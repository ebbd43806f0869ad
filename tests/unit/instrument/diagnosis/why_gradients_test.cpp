#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

/// The way back through a training step: which element made an element of a gradient, a moment or a weight bad.
namespace nanscope {
namespace {

using testing::constant;
using ::testing::ElementsAre;
using testing::Fill;
using ::testing::HasSubstr;
using testing::In;
using testing::kNan;
using testing::RunBuilder;

/// One everywhere but NaN at one element.
Fill nan_at(std::int64_t row, std::int64_t channel) {
  return [=](std::int64_t r, std::int64_t c) { return r == row && c == channel ? kNan : 1.0F; };
}

/// The same, with another before it, in row 0, that is not to be followed.
Fill second_nan_at(std::int64_t row, std::int64_t channel) {
  return [=](std::int64_t r, std::int64_t c) {
    const bool first = r == 0 && c == (channel + 1) % 4;
    return first || (r == row && c == channel) ? kNan : 1.0F;
  };
}

/// Steps of a training step of one sequence of three tokens; tensors of tokens are (3, 4), a weight's (4, 4).
struct TrainedStep {
  RunBuilder b;
  TrainedStep() { b.request(0, {5, 6, 7}); }

  void step(StepKind kind) {
    const auto index = static_cast<std::int64_t>(kind) - static_cast<std::int64_t>(StepKind::forward);
    b.step(0, index, 0, kind == StepKind::optimizer ? 0 : 3);
    b.run.step_rows.back().kind = kind;
  }
  std::int64_t of_tokens(const std::string& name, const std::string& kind, const std::vector<In>& inputs,
                         const std::string& role, const Fill& fill, const std::string& attributes = "{}") {
    b.op(-1, name, kind, inputs, attributes);
    return also_of_tokens(role, fill);
  }
  std::int64_t also_of_tokens(const std::string& role, const Fill& fill) {
    const std::int64_t id = b.output(role, {3, 4, 0, 1}, fill);
    b.run.tensor_rows.back().axis = Axis::rows;
    return id;
  }
  /// A parameter's gradient, moment or new version; a second output of the op that was told last.
  std::int64_t of_weight(const std::string& role, const Fill& fill, std::int64_t rows = 4) {
    const std::int64_t id = b.output(role, {rows, 4, 0, 1}, fill);
    b.run.tensor_rows.back().axis = Axis::none;
    return id;
  }
  WhyPath path(std::int64_t tensor, std::int64_t row, std::int64_t channel) {
    RecordingView run(b.run, b.tensors);
    Result<WhyPath> found = why(run, Element{tensor, row, channel});
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(WhyPath{});
  }
};

/// The elements on the way, by the tensor's role.
std::vector<std::string> elements_of(const WhyPath& path) {
  std::vector<std::string> found;
  for (const Hop& hop : path.hops) {
    std::string place = hop.kind == HopKind::element ? place_text(hop.where) : std::string(name(hop.kind));
    found.push_back(place.substr(place.find_last_of('/') + 1));
  }
  return found;
}

TEST(WhyGradient, OfALossIsInItsRowsLogits) {
  TrainedStep t;
  t.step(StepKind::forward);
  const auto logits = t.of_tokens("lm_head", "gemm", {}, "logits", nan_at(1, 2));
  t.b.op(-1, "loss", "cross_entropy", {{"logits", logits}}, R"({"targets": 3})");
  const auto loss = t.b.output("loss", {3, 1, 0, 1}, [](auto row, auto) { return row == 1 ? kNan : 1.0F; });
  t.b.run.tensor_rows.back().axis = Axis::rows;
  EXPECT_THAT(elements_of(t.path(loss, 1, 0)), ElementsAre("loss.loss[1,0]", "lm_head.logits[1,2]"));
}

TEST(WhyGradient, OfALossWithoutTargetsIsBornOfNoughtByNought) {
  TrainedStep t;
  t.step(StepKind::forward);
  const auto logits = t.of_tokens("lm_head", "gemm", {}, "logits", constant(1));
  t.step(StepKind::backward);
  const auto dlogits = t.of_tokens("loss_grad", "cross_entropy_gradient", {{"logits", logits}}, "dlogits",
                                   constant(kNan), R"({"targets": 0, "loss_scale": 1024})");
  const WhyPath path = t.path(dlogits, 2, 3);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(path.conclusion, HasSubstr("no token of the batch is a target, so that its mean is 0 / 0"));
  EXPECT_EQ(to_string(*find(path.hops[0].numbers, "targets")), "0");
  EXPECT_EQ(to_string(*find(path.hops[0].numbers, "loss scale")), "1024");
}

TEST(WhyGradient, OfALossFollowsBadLogits) {
  TrainedStep t;
  t.step(StepKind::forward);
  const auto logits = t.of_tokens("lm_head", "gemm", {}, "logits", nan_at(2, 0));
  t.step(StepKind::backward);
  const auto dlogits = t.of_tokens(
      "loss_grad", "cross_entropy_gradient", {{"logits", logits}}, "dlogits",
      [](auto row, auto) { return row == 2 ? kNan : 1.0F; }, R"({"targets": 3})");
  EXPECT_THAT(elements_of(t.path(dlogits, 2, 3)), ElementsAre("loss_grad.dlogits[2,3]", "lm_head.logits[2,0]"));
}

/// A product's three gradients, of a dout that is bad at token 1, channel 3, or of an x that is at token 2, channel 0.
struct ProductGradient {
  TrainedStep t;
  std::int64_t dx = 0, dweight = 0, dbias = 0;
  ProductGradient(const Fill& dout_values, const Fill& x_values, const std::string& weight = "up_proj.weight") {
    t.step(StepKind::forward);
    const auto x = t.of_tokens("norm", "layer_norm", {}, "out", x_values);
    t.step(StepKind::backward);
    const auto dout = t.of_tokens("act_grad", "activation_gradient", {}, "dx", dout_values);
    dx = t.of_tokens("up_proj_grad", "gemm_gradient", {{"dout", dout}, {"x", x}, {"weight", 0, weight}}, "dx",
                     constant(kNan));
    dweight = t.of_weight("dweight", constant(kNan));
    dbias = t.of_weight("dbias", constant(kNan), 1);
  }
};

TEST(WhyGradient, OfAProductIsInTheRowOrTheColumnOfItsOutputs) {
  ProductGradient made(second_nan_at(1, 3), constant(1));
  EXPECT_THAT(elements_of(made.t.path(made.dx, 1, 0)), ElementsAre("up_proj_grad.dx[1,0]", "act_grad.dx[1,3]"));
  EXPECT_THAT(elements_of(made.t.path(made.dweight, 3, 2)),
              ElementsAre("up_proj_grad.dweight[3,2]", "act_grad.dx[1,3]"));
  EXPECT_THAT(elements_of(made.t.path(made.dbias, 0, 3)), ElementsAre("up_proj_grad.dbias[0,3]", "act_grad.dx[1,3]"));
}

TEST(WhyGradient, OfAProductIsInTheColumnOfItsInput) {
  ProductGradient made(constant(1), second_nan_at(2, 0));
  EXPECT_THAT(elements_of(made.t.path(made.dweight, 3, 0)), ElementsAre("up_proj_grad.dweight[3,0]", "norm.out[2,0]"));
}

TEST(WhyGradient, OfAProductIsInItsWeight) {
  ProductGradient made(constant(1), constant(1));
  made.t.b.weight("up_proj.weight", 1);
  const WhyPath path = made.t.path(made.dx, 1, 0);
  EXPECT_THAT(elements_of(path), ElementsAre("up_proj_grad.dx[1,0]", "weight"));
  EXPECT_THAT(path.hops[0].text, HasSubstr("the weight up_proj.weight holds NaN or Inf"));
}

TEST(WhyGradient, OfANormsWeightIsInItsColumn) {
  for (const bool of_x : {false, true}) {
    TrainedStep t;
    t.step(StepKind::forward);
    const auto x = t.of_tokens("embed", "embedding", {}, "out", of_x ? second_nan_at(2, 1) : constant(1));
    t.step(StepKind::backward);
    const auto dout = t.of_tokens("up_proj_grad", "gemm_gradient", {}, "dx", of_x ? constant(1) : second_nan_at(2, 1));
    const auto dx = t.of_tokens("norm_grad", "layer_norm_gradient", {{"dout", dout}, {"x", x}}, "dx", constant(kNan));
    const auto dweight = t.of_weight("dweight", constant(kNan), 1);
    const std::string cause = of_x ? "embed.out[2,1]" : "up_proj_grad.dx[2,1]";
    EXPECT_THAT(elements_of(t.path(dweight, 0, 1)), ElementsAre("norm_grad.dweight[0,1]", cause));
    EXPECT_THAT(elements_of(t.path(dx, 2, 3)), ElementsAre("norm_grad.dx[2,3]", cause));
  }
}

/// Ops whose gradients mix no rows: from the bad row of what went in.
class WhyRowOfGradient : public ::testing::TestWithParam<const char*> {};

TEST_P(WhyRowOfGradient, IsTheSameRowOfWhatWentIn) {
  TrainedStep t;
  t.step(StepKind::backward);
  const auto healthy = t.of_tokens("one_grad", "gemm_gradient", {}, "dx", constant(1));
  const auto dout = t.of_tokens("two_grad", "gemm_gradient", {}, "dx", nan_at(1, 2));
  const auto dx = t.of_tokens("op_grad", GetParam(), {{"a", healthy}, {"b", dout}}, "dx",
                              [](auto row, auto) { return row == 1 ? kNan : 1.0F; });
  EXPECT_THAT(elements_of(t.path(dx, 1, 0)), ElementsAre("op_grad.dx[1,0]", "two_grad.dx[1,2]"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, WhyRowOfGradient,
                         ::testing::Values("rope_gradient", "attention_scores_gradient", "softmax_gradient",
                                           "attention_mix_gradient", "activation_gradient", "softcap_gradient",
                                           "gradient_sum", "gradient_rows"),
                         [](const auto& info) { return std::string(info.param); });

/// Of a parameter, whose rows are no tokens: whichever token of what went in is bad.
TEST(WhyGradient, OfATableAndTheNormIsInAnyRow) {
  TrainedStep t;
  t.step(StepKind::backward);
  const auto dout = t.of_tokens("norm_grad", "layer_norm_gradient", {}, "dx", nan_at(2, 3));
  t.b.op(-1, "embed_grad", "embedding_gradient", {{"dout", dout}});
  const auto table = t.of_weight("dweight", [](auto row, auto) { return row == 1 ? kNan : 0.0F; });
  t.step(StepKind::optimizer);
  t.b.op(-1, "gradient_norm", "gradient_norm", {{"gradient", table}});
  const auto norm = t.of_weight("norm", constant(kNan), 1);
  EXPECT_THAT(elements_of(t.path(table, 1, 0)), ElementsAre("embed_grad.dweight[1,0]", "norm_grad.dx[2,3]"));
  EXPECT_THAT(elements_of(t.path(norm, 0, 0)),
              ElementsAre("gradient_norm.norm[0,0]", "embed_grad.dweight[1,0]", "norm_grad.dx[2,3]"));
}

constexpr const char* kAdamW = R"({"eps": 1e-8, "state": "f16", "learning_rate": 0.5})";

/// A weight of which an optimizer step made a version that is bad at [2,1], whose gradient is `gradient`.
struct UpdatedWeight {
  TrainedStep t;
  std::int64_t logits = 0, made = 0;
  UpdatedWeight(const Fill& gradient, const std::string& before, std::uint64_t bad_before, const char* attributes) {
    t.step(StepKind::forward);
    const auto x = t.of_tokens("final_norm", "layer_norm", {}, "out", constant(1));
    t.step(StepKind::backward);
    const auto dout = t.of_tokens("loss_grad", "cross_entropy_gradient", {}, "dlogits",
                                  [&](auto row, auto c) { return row == 1 ? gradient(c, 1) : 1.0F; });
    t.of_tokens("head_grad", "gemm_gradient", {{"dout", dout}, {"x", x}}, "dx", constant(1));
    const auto dweight = t.of_weight("dweight", gradient);
    t.step(StepKind::optimizer);
    update(dweight, before, attributes);
    t.b.weight(before, bad_before);
    t.b.weight("head.weight@4", 1);
    t.step(StepKind::forward);
    logits = t.of_tokens("lm_head", "gemm", {{"x", x}, {"weight", 0, "head.weight@4"}}, "logits", nan_at(0, 2));
  }
  void update(std::int64_t gradient, const std::string& before, const char* attributes) {
    t.b.op(-1, "other_adamw", "adamw", {{"gradient", gradient}, {"weight", 0, "other.weight"}}, kAdamW);
    t.of_weight("weight", constant(kNan));
    t.b.op(-1, "head_weight_adamw", "adamw", {{"gradient", gradient}, {"weight", 0, before}}, attributes);
    made = t.of_weight("weight", nan_at(2, 1));
    t.of_weight("m", nan_at(2, 1));
    t.of_weight("v", nan_at(2, 1));
  }
};

/// Over the weight's version to the step that made it, the gradient of the same element, and the token that it is of.
TEST(WhyWeight, GoesBackOverTheOptimizerToTheToken) {
  UpdatedWeight updated(nan_at(2, 1), "head.weight", 0, kAdamW);
  EXPECT_THAT(elements_of(updated.t.path(updated.logits, 0, 2)),
              ElementsAre("lm_head.logits[0,2]", "weight", "head_weight_adamw.weight[2,1]", "head_grad.dweight[2,1]",
                          "loss_grad.dlogits[1,2]"));
}

/// The version that the optimizer made is where the row of the table comes from; what a run began with is an origin.
TEST(WhyWeight, OfATableGoesBackOverTheOptimizer) {
  for (const bool trained : {true, false}) {
    TrainedStep t;
    t.step(StepKind::backward);
    t.b.op(-1, "embed_grad", "embedding_gradient", {});
    const auto gradient = t.of_weight("dweight", nan_at(3, 0));
    t.step(StepKind::optimizer);
    t.b.op(-1, "embed_weight_adamw", "adamw", {{"gradient", gradient}, {"weight", 0, "embed.weight"}}, kAdamW);
    t.of_weight("weight", nan_at(3, 0));
    const std::string name = trained ? "embed.weight@3" : "embed.weight";
    t.b.weight(name, 1);
    t.step(StepKind::forward);
    const auto out = t.of_tokens("embed", "embedding", {{"weight", 0, name}}, "out", nan_at(1, 0));
    const WhyPath path = t.path(out, 1, 0);
    const std::vector<std::string> born{"embed.out[1,0]", "weight"};
    std::vector<std::string> made = born;
    made.insert(made.end(), {"embed_weight_adamw.weight[3,0]", "embed_grad.dweight[3,0]"});
    EXPECT_EQ(elements_of(path), trained ? made : born);
    EXPECT_EQ(path.origin == std::optional<std::size_t>(0), !trained);
  }
}

TEST(WhyWeight, IsBornWhereEpsIsNoughtInTheStatesFormat) {
  UpdatedWeight updated(constant(0), "head.weight", 0, kAdamW);
  const WhyPath path = updated.t.path(updated.made, 2, 1);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(path.conclusion, HasSubstr("eps = 1e-08 is 0 in f16"));
  EXPECT_EQ(to_string(*find(path.hops[0].numbers, "learning rate")), "0.5");
  UpdatedWeight wide(constant(0), "head.weight", 0, R"({"eps": 1e-8, "state": "bf16"})");
  EXPECT_THAT(wide.t.path(wide.made, 2, 1).conclusion, ::testing::Not(HasSubstr("is 0 in")));
}

/// What was NaN stays NaN, whatever the gradient: on to the weight that the step began with.
TEST(WhyWeight, IsBadWhereItWasBefore) {
  UpdatedWeight updated(constant(1), "head.weight", 1, kAdamW);
  const WhyPath path = updated.t.path(updated.made, 2, 1);
  EXPECT_THAT(elements_of(path), ElementsAre("head_weight_adamw.weight[2,1]", "weight"));
  EXPECT_THAT(path.hops[0].text, HasSubstr("the gradient is healthy, the weight head.weight holds NaN or Inf"));
  EXPECT_EQ(path.stopped, "a weight is bad");
}

}  // namespace
}  // namespace nanscope
