#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using testing::kNan;
using testing::number;
using testing::OneStep;
using testing::root_of;

/// Logits of `value` throughout, from which token 0 is chosen; the hidden state before them holds `hidden`.
Diagnosis chosen(float value, std::optional<float> hidden) {
  DumpGraph g;
  g.pass();
  const TensorId x = hidden ? g.source({.fill = constant(*hidden)}) : g.unknown("final_norm", OpKind::layer_norm, {});
  const TensorId logits =
      g.op("lm_head", OpKind::gemm, {{"x", x}}, {.role = "logits", .channels = 5, .fill = constant(value)});
  g.op("argmax", OpKind::argmax, {{"logits", logits}},
       {.role = "token", .channels = 1, .fill = constant(0), .format = Format::i32});
  return diagnosis_of(g, false);
}

TEST(ArgmaxNanFallback, ATokenOfARowOfNaN) {
  const Diagnosis found = chosen(kNan, std::nullopt);
  ASSERT_EQ(root_of(found), "argmax-nan-fallback");
  EXPECT_EQ(number(found.faults[0], "token"), "0");
  EXPECT_EQ(number(found.faults[0], "rows"), "4");
}

TEST(ArgmaxNanFallback, WhereTheNaNWasBornIsItsCause) {
  OneStep one;
  const auto bad = one.add("o_proj", "gemm", {{"x", one.x}}, kNan);
  one.head(bad, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  ASSERT_THAT(classes(found), ElementsAre("invalid-op", "argmax-nan-fallback"));
  EXPECT_EQ(found.faults[1].because, 0U);
}

TEST(ArgmaxNanFallback, LargeFiniteLogitsAndTokenZeroAreClean) { EXPECT_EQ(root_of(chosen(3e38F, 1.0F)), "clean"); }

/// An engine that refuses to choose says so with a token that is none.
TEST(ArgmaxNanFallback, ARefusalIsNone) {
  OneStep one;
  const auto bad = one.add("o_proj", "gemm", {{"x", one.x}}, kNan);
  one.head(bad, kNan, -1);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("invalid-op"));
}

}  // namespace
}  // namespace nanscope
