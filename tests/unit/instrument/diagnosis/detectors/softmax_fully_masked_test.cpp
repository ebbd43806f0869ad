#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::kInf;
using testing::kNan;
using testing::number;
using testing::OneStep;
using testing::root_of;

/// Scores of four tokens and keys, -Inf above the diagonal and in all of row `empty`; its probabilities are `probs`.
Diagnosis scored(std::int64_t empty, float probs) {
  DumpGraph g;
  g.pass();
  const TensorId scores =
      g.op("scores", OpKind::attention_scores, {},
           {.role = "scores", .fill = [=](auto row, auto key) { return key > row || row == empty ? -kInf : 1.0F; }});
  g.op("softmax", OpKind::softmax, {{"scores", scores}}, {.role = "probs", .fill = [=](auto row, auto key) {
                                                            if (row == empty) return probs;
                                                            return key > row ? 0.0F
                                                                             : 1.0F / static_cast<float>(row + 1);
                                                          }});
  return diagnosis_of(g);
}

TEST(SoftmaxFullyMasked, ARowWithoutAKeyIsNaN) {
  const Diagnosis found = scored(2, kNan);
  ASSERT_THAT(classes(found), ElementsAre("softmax-fully-masked"));
  EXPECT_EQ(found.faults[0].tensor, "p1.softmax.probs");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{2, 2}));
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(SoftmaxFullyMasked, OrTheSameForEveryKey) {
  const Diagnosis found = scored(2, 0.25F);
  ASSERT_EQ(root_of(found), "softmax-fully-masked");
  EXPECT_FALSE(found.faults[0].breaks);
}

TEST(SoftmaxFullyMasked, ACausalMaskIsClean) { EXPECT_EQ(root_of(scored(-1, 0)), "clean"); }

TEST(SoftmaxFullyMasked, APaddingRowIsNobodys) {
  DumpGraph g;
  g.pass({Span{0, 0, 1, 3, 0, 3}});
  const TensorId scores =
      g.op("scores", OpKind::attention_scores, {},
           {.role = "scores", .fill = [](auto row, auto key) { return row == 0 || key > row ? -kInf : 1.0F; }});
  g.op("softmax", OpKind::softmax, {{"scores", scores}},
       {.role = "probs", .fill = [](auto row, auto key) {
          return row == 0 ? kNan : key > row ? 0.0F : 1.0F / static_cast<float>(row + 1);
        }});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "clean");
}

TEST(SoftmaxFullyMasked, ADumpedMaskThatHidesAllIsEnough) {
  DumpGraph g;
  g.pass();
  const TensorId mask =
      g.op("mask", OpKind::parameter, {},
           {.role = "mask", .fill = [](auto row, auto key) { return row == 2 || key > row ? -kInf : 0.0F; }});
  const TensorId scores = g.unknown("scores", OpKind::attention_scores, {});
  g.op("softmax", OpKind::softmax, {{"scores", scores}, {"mask", mask}},
       {.role = "probs", .fill = [](auto row, auto) { return row == 2 ? kNan : 0.25F; }});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "softmax-fully-masked");
}

TEST(SoftmaxFullyMasked, OfProbabilitiesThatWereNotDumped) {
  DumpGraph g;
  g.pass();
  const TensorId scores =
      g.op("scores", OpKind::attention_scores, {},
           {.role = "scores", .fill = [](auto row, auto key) { return key > row || row == 2 ? -kInf : 1.0F; }});
  const TensorId probs = g.unknown("softmax", OpKind::softmax, {{"scores", scores}});
  g.op("attn_mix", OpKind::attention_mix, {{"probs", probs}}, {.fill = testing::row_of(2, kNan)});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "softmax-fully-masked");
}

/// Row 0 is padding that the mask leaves no key, and what goes over it takes its NaN times zero.
TEST(SoftmaxFullyMasked, PaddingWhoseNanReachesTheOthers) {
  DumpGraph g;
  g.pass({Span{0, 0, 1, 3, 0, 3}});
  const TensorId mask =
      g.op("mask", OpKind::parameter, {},
           {.role = "mask",
            .fill = [](auto row, auto key) { return row == 0 || key == 0 || key > row ? -kInf : 0.0F; },
            .axis = Axis::none});
  const TensorId v = g.source();
  const TensorId first =
      g.op("attention", OpKind::attention, {{"v", v}, {"mask", mask}}, {.fill = testing::row_of(0, kNan)});
  const TensorId next = g.op("v_proj", OpKind::gemm, {{"x", first}}, {.fill = testing::row_of(0, kNan)});
  g.op("attention2", OpKind::attention, {{"v", next}, {"mask", mask}}, {.fill = testing::constant(kNan)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_EQ(root_of(found), "softmax-fully-masked");
  EXPECT_EQ(found.faults[0].tensor, "p1.attention");
}

/// The mask of a cache of a fixed length has a column a slot, the first of them for the first token.
TEST(SoftmaxFullyMasked, AMaskWithAColumnASlotIsNotOfTheLastKeys) {
  DumpGraph g;
  g.pass();
  const TensorId mask =
      g.op("mask", OpKind::parameter, {},
           {.role = "mask", .channels = 8, .fill = [](auto row, auto key) { return key > row ? -kInf : 0.0F; }});
  const TensorId k = g.op("kv_store", OpKind::kv_store, {}, {.role = "k_cache", .tokens = 8, .axis = Axis::keys});
  const TensorId q = g.source();
  g.op("attention", OpKind::attention, {{"q", q}, {"k", k}, {"mask", mask}}, {.fill = testing::row_of(1, kNan)});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "invalid-op");
}

/// Two decoders of two rows attend to four rows of an encoder each; of the second encoder's, the last two are padding.
TEST(SoftmaxFullyMasked, AMaskOverTheRowsOfAnEncoderIsNotOfItsOwnKeys) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 2, 0, 2}, Span{1, 0, 2, 2, 0, 2}}, 4, 2);
  const TensorId mask = g.op("mask", OpKind::parameter, {},
                             {.role = "mask",
                              .fill = [](auto row, auto key) { return row >= 2 && key >= 2 ? -kInf : 0.0F; },
                              .axis = Axis::none});
  const TensorId q = g.source();
  g.op("attention", OpKind::attention, {{"q", q}, {"mask", mask}}, {.fill = testing::constant(0.5F)});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "clean");
}

TEST(SoftmaxFullyMasked, IntendedMinusInfinityThatNothingSpreadsIsClean) {
  OneStep one;
  one.b.op(0, "scores", "attention_scores", {{"q", one.x}, {"k", one.x}});
  const auto scores = one.b.output("out", {2, 2, 0, 1}, [](auto row, auto key) { return key > row ? -kInf : 1.0F; });
  one.b.op(0, "softmax", "softmax", {{"scores", scores}}, R"({"heads":1})");
  const auto probs = one.b.output("probs", {2, 2, 0, 1}, [](auto row, auto key) { return key > row ? 0.0F : 0.5F; });
  one.head(probs, 1, 0);
  EXPECT_EQ(root_of(diagnosis_of(one.b)), "clean");
}

/// A recording states which keys its mask leaves: none before the first.
TEST(SoftmaxFullyMasked, RowsOfARecordingWhoseMaskBeginsTooLate) {
  OneStep one(3);
  one.b.op(0, "scores", "attention_scores", {{"q", one.x}, {"k", one.x}});
  const auto scores = one.b.output("out", {3, 3, 0, 1}, testing::constant(1));
  one.b.op(0, "softmax", "softmax", {{"scores", scores}},
           R"({"mask":"additive","heads":1,"first_position":0,"first_key":2})");
  const auto probs = one.b.output("probs", {3, 3, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 0.5F; });
  one.b.op(0, "attn_residual", "residual_add", {{"a", one.x}, {"b", probs}});
  const auto out = one.b.output("out", {3, 4, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 1.0F; });
  one.b.op(-1, "lm_head", "gemm", {{"x", out}});
  one.b.output("logits", {3, 5, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 1.0F; });
  const Diagnosis found = diagnosis_of(one.b);
  ASSERT_THAT(classes(found), ElementsAre("softmax-fully-masked"));
  EXPECT_EQ(found.faults[0].where.tokens, (Range{0, 1}));
}

/// One token of a decode whose four keys are all hidden by the most negative number.
Diagnosis decoded(const testing::Fill& probs) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 1, 3, 4}}, 1);
  const TensorId scores =
      g.op("scores", OpKind::attention_scores, {},
           {.role = "scores", .tokens = 1, .fill = testing::constant(std::numeric_limits<float>::lowest())});
  g.op("softmax", OpKind::softmax, {{"scores", scores}}, {.role = "probs", .tokens = 1, .fill = probs});
  return diagnosis_of(g, false);
}

TEST(SoftmaxFullyMasked, EveryRowOfAPassWhereProbabilitiesShowIt) {
  const Diagnosis found = decoded(testing::constant(0.25F));
  EXPECT_THAT(classes(found), ElementsAre("softmax-fully-masked"));
}

TEST(SoftmaxFullyMasked, EveryRowOfAPassIsNotExcludedWhereTheyDoNot) {
  const Diagnosis found = decoded([](auto, auto key) { return key == 1 ? 0.7F : 0.1F; });
  EXPECT_EQ(root_of(found), "clean");
  EXPECT_EQ(testing::check(found, "softmax-fully-masked").state, Checked::not_looked_at);
}

/// Two sequences of four tokens, the second with one of left padding. The ones of their mask hide, as MPT's do, or
/// show.
Diagnosis of_a_batch(bool ones_hide) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 4, 0, 4}, Span{1, 0, 5, 3, 0, 3}}, 8, 2);
  const auto hidden = [](std::int64_t row, std::int64_t key) { return key > row % 4 || (row >= 4 && key == 0); };
  const TensorId mask = g.op("mask", OpKind::parameter, {},
                             {.role = "mask",
                              .tokens = 8,
                              .fill = [=](auto row, auto key) { return hidden(row, key) == ones_hide ? 1.0F : 0.0F; },
                              .format = Format::i32});
  g.op("softmax", OpKind::softmax, {{"mask", mask}},
       {.role = "probs",
        .tokens = 8,
        .fill =
            [=](auto row, auto key) {
              if (row == 4) return 0.25F;
              const std::int64_t seen = row < 4 ? row + 1 : row - 4;
              return hidden(row, key) ? 0.0F : 1.0F / static_cast<float>(seen);
            },
        .heads = 1});
  return diagnosis_of(g, false);
}

TEST(SoftmaxFullyMasked, AMaskWhoseOnesHideIsReadSoInABatch) {
  EXPECT_NE(root_of(of_a_batch(false)), "softmax-fully-masked");
  EXPECT_NE(root_of(of_a_batch(true)), "softmax-fully-masked");
}

}  // namespace
}  // namespace nanscope
