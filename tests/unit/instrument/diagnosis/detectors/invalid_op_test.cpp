#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::kInf;
using testing::kNan;
using testing::number;
using testing::one_at;
using testing::root_of;
using testing::row_of;

TEST(InvalidOp, NaNOfFiniteValuesThatNoClassExplains) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.fill = constant(0)});
  g.op("inner_norm", OpKind::layer_norm, {{"x", x}}, {.fill = constant(kNan)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("invalid-op"));
  EXPECT_EQ(found.faults[0].tensor, "p1.inner_norm");
  EXPECT_EQ(number(found.faults[0], "rows"), "4");
  EXPECT_EQ(number(found.faults[0], "inputs_known"), "1");
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(InvalidOp, WhatOnlyPassesItOnIsNone) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source();
  const TensorId bad = g.op("up_proj", OpKind::gemm, {{"x", x}}, {.fill = one_at(1, 2, kNan)});
  const TensorId next = g.op("mlp_act", OpKind::activation, {{"x", bad}}, {.fill = one_at(1, 2, kNan)});
  g.op("down_proj", OpKind::gemm, {{"x", next}}, {.fill = row_of(1, kNan)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("invalid-op"));
  EXPECT_EQ(found.faults[0].tensor, "p1.up_proj");
}

TEST(InvalidOp, OfWhatWasNotDumpedIsToldBesideAnotherFault) {
  DumpGraph g;
  g.pass();
  const TensorId scores =
      g.op("scores", OpKind::attention_scores, {},
           {.role = "scores", .fill = [](auto row, auto key) { return row == 2 || key > row ? -kInf : 1.0F; }});
  g.op("softmax", OpKind::softmax, {{"scores", scores}},
       {.role = "probs", .fill = [](auto row, auto key) {
          return row == 2 ? kNan : key > row ? 0.0F : 1.0F / static_cast<float>(row + 1);
        }});
  // Of another layer, and made of what nobody dumped.
  g.layer = 1;
  const TensorId lost = g.unknown("up_proj", OpKind::gemm, {});
  g.op("mlp_act", OpKind::activation, {{"x", lost}}, {.fill = row_of(0, kNan)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("softmax-fully-masked", "invalid-op"));
  EXPECT_EQ(number(found.faults[1], "inputs_known"), "0");
  EXPECT_FALSE(found.faults[1].because.has_value());
}

TEST(InvalidOp, NaNInPaddingThatNothingReadsIsClean) {
  DumpGraph g;
  g.pass({Span{0, 0, 1, 3, 0, 3}});
  const TensorId x = g.source();
  g.op("up_proj", OpKind::gemm, {{"x", x}}, {.fill = row_of(0, kNan)});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "clean");
}

/// A pooled row for each sequence of a batch: one that has no tokens is in no span.
TEST(InvalidOp, NaNInRowsThatAreNotTheStepsIsSeen) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 2, 0, 2}});
  const TensorId x = g.source();
  g.op("pooler", OpKind::dumped, {{"x", x}}, {.tokens = 2, .fill = row_of(1, kNan), .axis = Axis::none});
  EXPECT_THAT(classes(diagnosis_of(g, false)), ElementsAre("invalid-op"));
}

TEST(InvalidOp, MinusInfinityThatHidesIsClean) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source();
  g.op("lm_head", OpKind::gemm, {{"x", x}}, {.role = "logits", .fill = one_at(1, 2, -kInf)});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "clean");
}

/// As many passes, each with the mask that hides later keys; in the last a projection of healthy numbers is NaN.
TEST(InvalidOp, PassesThatHoldNothingButAMaskDoNotEndTheSearch) {
  DumpGraph g;
  for (std::int64_t pass = 0; pass < 70; ++pass) {
    g.pass({Span{0, pass, 0, 4, 4 * pass, 4 * pass + 4}});
    g.op("attention_mask", OpKind::copy, {},
         {.role = "mask", .fill = [](auto row, auto key) { return key > row ? -testing::kInf : 0.0F; }});
    const TensorId x = g.source();
    g.op("q_proj", OpKind::gemm, {{"x", x}}, {.fill = testing::constant(pass == 69 ? testing::kNan : 1.0F)});
  }
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "invalid-op");
}

TEST(InvalidOp, ManyBirthsEndTheSearchAndThatIsSaid) {
  DumpGraph g;
  for (std::int64_t pass = 0; pass < 70; ++pass) {
    g.pass({Span{0, pass, 0, 4, 4 * pass, 4 * pass + 4}});
    const TensorId x = g.source();
    g.op("q_proj", OpKind::gemm, {{"x", x}}, {.fill = testing::one_at(1, 1, testing::kNan)});
  }
  const Diagnosis found = diagnosis_of(g, false);
  EXPECT_EQ(testing::check(found, "invalid-op").state, Checked::found);
  EXPECT_EQ(testing::check(found, "prefix-cache-poison").state, Checked::not_looked_at);
}

}  // namespace
}  // namespace nanscope
