#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::constant;
using ::testing::HasSubstr;
using testing::RunBuilder;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A router over three experts for two tokens; `logit` is that of the second token.
struct Mixture {
  explicit Mixture(float logit, float weight) {
    b.request(0, {5, 6});
    b.step(0, 0, 0, 2);
    b.op(0, "mlp_norm", "layer_norm", {});
    const auto x = b.output("out", {2, 4, 0, 1}, constant(1));
    b.op(0, "router", "gemm", {{"x", x}});
    const auto logits = b.output("out", {2, 3, 0, 1}, [=](auto row, auto) { return row == 1 ? logit : 0.0F; });
    b.op(0, "route", "route", {{"logits", logits}}, R"({"weights":"choice_minus_bias"})");
    weights = b.output("weights", {2, 2, 0, 1}, [=](auto row, auto) { return row == 1 ? weight : 0.5F; });
    const auto ids = b.output(
        "ids", {2, 2, 0, 1}, [](auto, auto j) { return static_cast<float>(j); }, Format::i32);
    b.op(0, "expert0_down_proj", "gemm", {{"x", x}});
    const auto first = b.output("out", {2, 4, 0, 1}, constant(3));
    b.op(0, "expert1_down_proj", "gemm", {{"x", x}});
    const auto second = b.output("out", {2, 4, 0, 1}, constant(5));
    b.op(0, "expert_mix", "expert_mix", {{"weights", weights}, {"ids", ids}, {"expert", first}, {"expert", second}});
    mix = b.output("out", {2, 4, 0, 1}, [=](auto row, auto) { return row == 1 ? 8 * weight : 4.0F; });
    b.op(-1, "lm_head", "gemm", {{"x", mix}});
    b.output("logits", {2, 4, 0, 1}, [=](auto row, auto) { return row == 1 ? weight : 1.0F; });
  }
  Diagnosis diagnosis() {
    Result<Diagnosis> found = diagnose(b.run, b.tensors, "here");
    EXPECT_TRUE(found.has_value());
    return found.value_or(Diagnosis{});
  }

  RunBuilder b;
  std::int64_t weights = 0;
  std::int64_t mix = 0;
};

TEST(RouterCancellation, WeightsOfNanFromFiniteLogitsAreOne) {
  Mixture made(-24.0F, kNan);
  const Diagnosis found = made.diagnosis();
  ASSERT_EQ(found.root_cause, 0U);
  EXPECT_EQ(found.faults[0].fault_class, "router-cancellation");
  EXPECT_EQ(found.faults[0].tensor, "0/0/0/route.weights");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{1, 1}));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("the 2 chosen gates add up to 7.55e-11"));
}

TEST(RouterCancellation, NanThatComesInWithTheLogitsIsNone) {
  Mixture made(kNan, kNan);
  for (const Fault& fault : made.diagnosis().faults) EXPECT_NE(fault.fault_class, "router-cancellation");
}

TEST(RouterCancellation, FiniteWeightsAreClean) { EXPECT_TRUE(Mixture(-24.0F, 0.5F).diagnosis().clean()); }

TEST(RouterCancellation, TheWalkGoesFromTheMixToTheWeightOrTheHeaviestExpert) {
  Mixture bad(-24.0F, kNan);
  const auto back = why(bad.b.run, bad.b.tensors, Element{bad.mix, 1, 2});
  ASSERT_TRUE(back);
  ASSERT_GE(back->hops.size(), 2U);
  EXPECT_EQ(place_text(back->hops[1].where), "0/0/0/route.weights[1,0]");
  Mixture good(0.0F, 0.5F);
  const auto healthy = why(good.b.run, good.b.tensors, Element{good.mix, 1, 2});
  ASSERT_TRUE(healthy);
  ASSERT_GE(healthy->hops.size(), 2U);
  EXPECT_EQ(place_text(healthy->hops[1].where), "0/0/0/expert0_down_proj.out[1,2]");
}

}  // namespace
}  // namespace nanscope
