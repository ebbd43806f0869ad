#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::kNan;
using testing::number;
using testing::OneStep;
using testing::root_of;

/// A norm whose row 2 lies around `mean`, with steps of `step` between neighbours, and is NaN behind it.
Diagnosis norm(float mean, float step, const std::string& kind = "layer", Format format = Format::f32) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 16, .fill = [=](auto row, auto channel) {
                                 const auto side = channel % 2 == 0 ? 1.0F : -1.0F;
                                 return row == 2 ? mean + side * step : side;
                               }});
  NormAttributes attributes;
  attributes.norm = kind;
  attributes.eps = 1e-5;
  g.op("attn_norm", OpKind::layer_norm, {{"x", x}},
       {.channels = 16,
        .fill = [](auto row, auto channel) { return row == 2           ? kNan
                                                    : channel % 2 == 0 ? 1.0F
                                                                       : -1.0F; },
        .format = format},
       attributes);
  return diagnosis_of(g, false);
}

TEST(VarianceCollapse, ARowWhoseVarianceIsLessThanItsSquareKeeps) {
  const Diagnosis found = norm(40, 0.0001F);
  ASSERT_THAT(classes(found), ElementsAre("variance-collapse"));
  EXPECT_EQ(number(found.faults[0], "mean"), "40");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{2, 2}));
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_FALSE(found.faults[0].because.has_value());
}

/// Most norms keep sums of squares in f32, however large they are for f16.
TEST(VarianceCollapse, OfFlatRowsInF16IsNoOverflow) {
  EXPECT_THAT(classes(norm(400, 0.001F, "layer", Format::f16)), ElementsAre("variance-collapse"));
}

/// Row 2 lies flat around 40 and comes out `wrong` times what it should, before `bias` is added.
Diagnosis finite_norm(float wrong, float step, float bias = 0, float noise = 0) {
  DumpGraph g;
  g.pass();
  NormAttributes attributes;
  attributes.norm = "layer";
  attributes.eps = 1e-9;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const auto side = [](std::int64_t channel) { return channel % 2 == 0 ? 1.0F : -1.0F; };
    const bool odd = layer == 1;
    const TensorId x =
        g.op("attn_residual", OpKind::dumped, {}, {.channels = 64, .fill = [=](auto row, auto channel) {
                                                     return odd && row == 2 ? 40 + side(channel) * step : side(channel);
                                                   }});
    const TensorId weight = g.parameter("attn_norm.weight", 1, 64, testing::constant(1));
    std::vector<std::pair<std::string, TensorId>> inputs{{"x", x}, {"weight", weight}};
    if (bias != 0) inputs.emplace_back("bias", g.parameter("attn_norm.bias", 1, 64, testing::constant(bias)));
    g.op("attn_norm", OpKind::layer_norm, inputs,
         {.channels = 64,
          .fill =
              [=](auto row, auto channel) {
                const float off = odd && row == 2 && channel < 4 ? noise : 0;
                return side(channel) * (odd && row == 2 ? wrong : 1.0F) + bias + off;
              }},
         attributes);
  }
  return diagnosis_of(g);
}

TEST(VarianceCollapse, OrStaysFiniteAndFarOff) {
  const Diagnosis found = finite_norm(3, 0.002F);
  ASSERT_THAT(classes(found), ElementsAre("variance-collapse"));
  EXPECT_FALSE(found.faults[0].breaks);
  EXPECT_EQ(root_of(finite_norm(3, 0.5F)), "wrong-result");
}

/// A variance of 0.05^2 comes out as 0.0039, within what a sum of 64 squares of 40 loses. Then the row is what it
/// should be times 0.8, before its bias, but for the rounding of its mean: less than a hundredth.
TEST(VarianceCollapse, OfARowThatIsOtherwiseRightIsShown) {
  EXPECT_THAT(classes(finite_norm(0.8F, 0.05F)), ElementsAre("variance-collapse"));
  EXPECT_THAT(classes(finite_norm(0.8F, 0.05F, 3)), ElementsAre("variance-collapse"));
  EXPECT_EQ(root_of(finite_norm(0.8F, 0.05F, 0, 0.2F)), "wrong-result");
}

TEST(VarianceCollapse, AVarianceThatIsKeptIsNone) { EXPECT_EQ(root_of(norm(40, 1)), "invalid-op"); }

TEST(VarianceCollapse, ANormThatSubtractsNoMeanHasNone) { EXPECT_EQ(root_of(norm(40, 0.0001F, "rms")), "invalid-op"); }

TEST(VarianceCollapse, TheSquareOfAHugeValueIsNone) {
  OneStep one;
  const auto x = one.add("o_proj", "gemm", {{"x", one.x}}, [](auto, auto channel) { return channel == 0 ? 1e25F : 0; });
  const auto out = one.add("attn_norm", "layer_norm", {{"x", x}}, kNan, Format::f32, R"({"eps":1e-5})");
  one.head(out, kNan, 0);
  EXPECT_EQ(root_of(diagnosis_of(one.b)), "invalid-op");
}

TEST(VarianceCollapse, BesideInheritedNaNIsSeen) {
  // Row 0 comes in bad; row 1 is healthy before the norm and NaN after it.
  OneStep one;
  const auto x = one.add("o_proj", "gemm", {{"x", one.x}}, [](auto row, auto) { return row == 0 ? kNan : 2.0F; });
  const auto out = one.add("attn_norm", "layer_norm", {{"x", x}}, kNan, Format::f32, R"({"eps":1e-5,"norm":"layer"})");
  one.head(out, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_EQ(testing::fault(found, "variance-collapse").where.tokens, (Range{1, 1}));
  EXPECT_EQ(testing::fault(found, "invalid-op").where.tokens, (Range{0, 0}));
}

TEST(VarianceCollapse, OfClippedRowsIsTheirConsequence) {
  testing::SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  const Fault fault = testing::fault(found, "variance-collapse");
  ASSERT_TRUE(fault.because.has_value());
  EXPECT_EQ(found.faults[*fault.because].fault_class, "kv-scale-locked");
}

}  // namespace
}  // namespace nanscope
