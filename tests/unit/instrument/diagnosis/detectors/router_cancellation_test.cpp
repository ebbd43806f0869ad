#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/dump_graph.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::kNan;
using testing::root_of;

/// A router over three experts; token 1 has these logits and these weights of the two that are chosen.
Diagnosis routed(float logit, float weight) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source();
  const TensorId logits = g.op("router", OpKind::gemm, {{"x", x}},
                               {.channels = 3, .fill = [=](auto row, auto) { return row == 1 ? logit : 0.0F; }});
  const TensorId weights =
      g.op("route", OpKind::route, {{"logits", logits}},
           {.role = "weights", .channels = 2, .fill = [=](auto row, auto) { return row == 1 ? weight : 0.5F; }});
  const TensorId expert = g.op("expert0_down_proj", OpKind::gemm, {{"x", x}}, {.fill = testing::constant(3)});
  g.op("expert_mix", OpKind::expert_mix, {{"weights", weights}, {"expert", expert}},
       {.fill = [=](auto row, auto) { return row == 1 ? 3 * weight : 3.0F; }});
  return diagnosis_of(g, false);
}

TEST(RouterCancellation, WeightsOfNanFromFiniteLogits) {
  const Diagnosis found = routed(-24, kNan);
  ASSERT_THAT(classes(found), ElementsAre("router-cancellation"));
  EXPECT_EQ(found.faults[0].tensor, "p1.route.weights");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{1, 1}));
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(RouterCancellation, NanThatComesInWithTheLogitsIsNone) {
  EXPECT_THAT(classes(routed(kNan, kNan)), ElementsAre("invalid-op"));
}

TEST(RouterCancellation, FiniteWeightsAreClean) { EXPECT_EQ(root_of(routed(-24, 0.5F)), "clean"); }

}  // namespace
}  // namespace nanscope
