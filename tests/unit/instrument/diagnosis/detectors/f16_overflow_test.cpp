#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kInf;
using testing::kNan;
using testing::noise;
using testing::number;
using testing::OneStep;
using testing::root_of;

/// A residual sum in f16 of what is `a` and `b` throughout.
Diagnosis residual(float a, float b, Format format = Format::f16) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.fill = constant(a), .format = Format::f16});
  const TensorId y = g.op("down_proj", OpKind::gemm, {}, {.fill = constant(b), .format = Format::f16});
  g.op("mlp_residual", OpKind::residual_add, {{"a", x}, {"b", y}}, {.fill = constant(a + b), .format = format});
  return diagnosis_of(g);
}

TEST(F16Overflow, AResidualBeyondItsRange) {
  const Diagnosis found = residual(58816, 33760);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(number(found.faults[0], "expected"), "92576");
  EXPECT_EQ(found.faults[0].tensor, "p1.mlp_residual");
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(F16Overflow, WithinItsRangeIsCleanWithTheFigure) {
  const Diagnosis found = residual(32000, 32000);
  EXPECT_TRUE(found.healthy());
  EXPECT_THAT(testing::check(found, "f16-overflow").text, HasSubstr("64000"));
}

TEST(F16Overflow, InBf16TheSameSumFits) { EXPECT_EQ(root_of(residual(58816, 33760, Format::bf16)), "clean"); }

TEST(F16Overflow, AClampThatHidesItIsTold) {
  DumpGraph g;
  g.pass();
  const auto at = [](float value) {
    return [=](std::int64_t row, std::int64_t channel) { return row == 1 && channel < 3 ? value : 1.0F; };
  };
  const TensorId x = g.source({.channels = 16, .fill = at(58816), .format = Format::f16});
  const TensorId y = g.op("down_proj", OpKind::gemm, {}, {.channels = 16, .fill = at(33760), .format = Format::f16});
  g.op("mlp_residual", OpKind::residual_add, {{"a", x}, {"b", y}},
       {.channels = 16,
        .fill = [](auto row, auto channel) { return row == 1 && channel < 3 ? 65504.0F : 2.0F; },
        .format = Format::f16});
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(number(found.faults[0], "plateau"), "65504");
  EXPECT_FALSE(found.faults[0].breaks);
}

TEST(F16Overflow, AProductThatOverflows) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 8, .fill = constant(200), .format = Format::f16});
  const TensorId weight = g.parameter("down_proj.weight", 4, 8, constant(50));
  g.op("down_proj", OpKind::gemm, {{"x", x}, {"weight", weight}}, {.fill = constant(80000), .format = Format::f16});
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(number(found.faults[0], "expected"), "80000");  // 8 * 200 * 50
}

/// A norm in f16 of which `zero` of four rows are zero; the squares of a row of `x` sum up to more than 16 x^2.
Diagnosis norm_with_zeros(std::int64_t zero, float x, std::optional<float> gain = 1) {
  DumpGraph g;
  g.pass();
  const TensorId in = g.source({.channels = 32, .fill = noise(1, double{x}), .format = Format::f16});
  std::vector<std::pair<std::string, TensorId>> inputs{{"x", in}};
  if (gain) inputs.emplace_back("weight", g.parameter("norm.weight", 1, 32, constant(*gain)));
  g.op("norm", OpKind::layer_norm, inputs,
       {.channels = 32,
        .fill =
            [&](auto r, auto c) {
              double squares = 0;
              for (std::int64_t i = 0; i < 32; ++i) squares += double{g.at(in, r, i)} * double{g.at(in, r, i)};
              return r < zero ? 0.0F : static_cast<float>(double{g.at(in, r, c)} / std::sqrt(squares / 32));
            },
        .format = Format::f16});
  return diagnosis_of(g);
}

TEST(F16Overflow, ANormOverAnInfiniteSumOfSquaresIsZeroInFewRowsOrInAll) {
  for (const std::int64_t zero : {1, 3, 4}) {
    const Diagnosis found = norm_with_zeros(zero, 200);
    EXPECT_EQ(root_of(found), "f16-overflow") << zero;
    EXPECT_EQ(number(testing::fault(found, "f16-overflow"), "rows"), std::to_string(zero));
  }
  EXPECT_EQ(root_of(norm_with_zeros(0, 200)), "clean");
  // A weight of zeros gives them, too; of one that was not dumped another row shows that it is none.
  EXPECT_NE(root_of(norm_with_zeros(4, 200, 0)), "f16-overflow");
  EXPECT_EQ(testing::fault(norm_with_zeros(4, 200, std::nullopt), "f16-overflow").certainty, Certainty::possible);
  EXPECT_EQ(testing::fault(norm_with_zeros(3, 200, std::nullopt), "f16-overflow").certainty, Certainty::proved);
  // The squares fit.
  EXPECT_NE(root_of(norm_with_zeros(4, 10)), "f16-overflow");
}

TEST(F16Overflow, OfARecordingWithWhatItLedTo) {
  OneStep one;
  const auto a = one.add("o_proj", "gemm", {{"x", one.x}}, 58820);
  const auto c = one.add("down_proj", "gemm", {{"x", one.x}}, 33760);
  const auto sum = one.add("mlp_residual", "residual_add", {{"a", a}, {"b", c}}, kInf, Format::f16);
  one.head(sum, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("f16-overflow", "argmax-nan-fallback"));
  EXPECT_EQ(number(found.faults[0], "expected"), "92580");
  EXPECT_EQ(found.faults[1].because, 0U);
  EXPECT_EQ(found.root_cause, 0U);
}

TEST(F16Overflow, OfValuesThatCameOutTooLargeIsTheirConsequence) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 16, .fill = noise(1, 4)});
  for (std::int64_t layer = 2; layer >= 0; --layer) {
    g.layer = layer;
    const auto branch =
        testing::linear(g, "down_proj", x, 4, 16, 16, 2 + static_cast<std::uint32_t>(layer), layer == 0 ? 30000 : 1);
    g.op("mlp_residual", OpKind::residual_add, {{"a", x}, {"b", branch.out}},
         {.channels = 16,
          .fill = [&](auto r, auto c) { return g.at(x, r, c) + g.at(branch.out, r, c); },
          .format = Format::f16});
  }
  const Diagnosis found = diagnosis_of(g);
  ASSERT_EQ(root_of(found), "wrong-result");
  EXPECT_EQ(testing::fault(found, "f16-overflow").because, found.root_cause);
}

}  // namespace
}  // namespace nanscope
