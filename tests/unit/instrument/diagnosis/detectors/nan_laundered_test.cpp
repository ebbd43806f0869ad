#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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
using testing::kNan;
using testing::number;
using testing::OneStep;
using testing::root_of;
using testing::row_of;

TEST(NanLaundered, AClampMakesANumberOfIt) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source();
  const TensorId up = g.op("up_proj", OpKind::gemm, {{"x", x}}, {.fill = row_of(1, kNan)});
  g.op("mlp_act", OpKind::activation, {{"x", up}}, {.fill = row_of(1, 7)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_EQ(root_of(found), "nan-laundered");
  EXPECT_EQ(found.faults[0].tensor, "p1.mlp_act");
  EXPECT_EQ(number(found.faults[0], "in"), "p1.up_proj");
  EXPECT_EQ(number(found.faults[0], "rows"), "1");
}

TEST(NanLaundered, WhereNaNGoesOnPastItTheBirthIsTheRoot) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source();
  const TensorId up = g.op("up_proj", OpKind::gemm, {{"x", x}}, {.fill = row_of(1, kNan)});
  g.op("mlp_act", OpKind::activation, {{"x", up}}, {.fill = row_of(1, 7)});
  g.op("mlp_residual", OpKind::residual_add, {{"a", x}, {"b", up}}, {.fill = row_of(1, kNan)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("invalid-op", "nan-laundered"));
  EXPECT_EQ(root_of(found), "invalid-op");
}

TEST(NanLaundered, WhatKeepsItIsNone) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source();
  const TensorId up = g.op("up_proj", OpKind::gemm, {{"x", x}}, {.fill = row_of(1, kNan)});
  g.op("mlp_act", OpKind::activation, {{"x", up}}, {.fill = row_of(1, kNan)});
  EXPECT_THAT(classes(diagnosis_of(g, false)), ElementsAre("invalid-op"));
}

TEST(NanLaundered, AFormatWithoutNaNHidesIt) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, kNan);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.output("k_codes", {2, 4, 0, 1}, constant(1), Format::int8);
  one.b.output("v_codes", {2, 4, 0, 1}, constant(0), Format::int8);
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  ASSERT_EQ(root_of(found), "nan-laundered");
  EXPECT_EQ(found.faults[0].tensor, "0/0/0/kv_store.v_codes");
}

TEST(NanLaundered, ACastThatSaturatesTellsWhereItWasBorn) {
  testing::RunBuilder b;
  b.request(0, {5, 6});
  b.step(0, 0, 0, 2);
  b.op(0, "attn_norm", "layer_norm", {});
  const auto x = b.output("out", {2, 4, 0, 1}, constant(1));
  b.op(0, "k_proj", "gemm", {{"x", x}});
  const auto k = b.output("out", {2, 4, 0, 1}, [](auto row, auto) { return row == 1 ? kNan : 1.0F; });
  b.op(0, "kv_store", "kv_store", {{"k", k}});
  b.output(
      "k_codes", {2, 4, 0, 1}, [](auto row, auto) { return row == 1 ? 448.0F : 1.0F; }, Format::e4m3);
  b.op(-1, "lm_head", "gemm", {{"x", x}});
  b.output("logits", {2, 4, 0, 1}, constant(1));
  const Diagnosis found = diagnosis_of(b);
  ASSERT_EQ(root_of(found), "nan-laundered");
  EXPECT_EQ(found.faults[0].tensor, "0/0/0/kv_store.k_codes");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("1 row"));
  EXPECT_EQ(number(found.faults[0], "born_in"), "0/0/0/k_proj.out");
}

TEST(NanLaundered, ASoftmaxThatMakesZerosOfANaNRow) {
  DumpGraph g;
  g.pass();
  const TensorId scores = g.op("scores", OpKind::attention_scores, {}, {.role = "scores", .fill = row_of(2, kNan)});
  g.op("softmax", OpKind::softmax, {{"scores", scores}},
       {.role = "probs", .fill = [](auto row, auto key) {
          return row == 2 ? 0.0F : key <= row ? 1.0F / static_cast<float>(row + 1) : 0.0F;
        }});
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "nan-laundered");
}

/// The mask drops the NaN of a key that the row may not see.
TEST(NanLaundered, AMaskThatHidesTheNanIsNot) {
  DumpGraph g;
  g.pass();
  const TensorId scores = g.op("scores", OpKind::attention_scores, {},
                               {.role = "scores", .fill = [](auto, auto key) { return key == 3 ? kNan : 1.0F; }});
  g.op("softmax", OpKind::softmax, {{"scores", scores}},
       {.role = "probs", .fill = [](auto row, auto key) {
          return row == 3 ? kNan : key <= row ? 1.0F / static_cast<float>(row + 1) : 0.0F;
        }});
  EXPECT_EQ(testing::fault(diagnosis_of(g, false), "nan-laundered").fault_class, "");
}

/// The largest value of a row of NaN is no number; the row's scale is zero, its codes are, and the product is finite.
TEST(NanLaundered, ACastHidesItOnceAndItsScaleFollows) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.op("attn_norm", OpKind::layer_norm, {}, {.channels = 8, .fill = row_of(1, kNan)});
  const TensorId scale =
      g.parameter("qkv_proj_input_scale", 4, 1, [](auto row, auto) { return row == 1 ? 0.0F : 1.0F; });
  const TensorId codes = g.op("qkv_proj_quantise", OpKind::quantise, {{"x", x}, {"scale", scale}},
                              {.role = "codes", .channels = 8, .fill = row_of(1, 127), .format = Format::int8});
  g.op("qkv_proj", OpKind::gemm, {{"x", x}, {"codes", codes}, {"x_scale", scale}}, {.channels = 8});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("nan-laundered"));
  EXPECT_EQ(found.faults[0].tensor, "p1.qkv_proj_quantise.codes");
}

TEST(NanLaundered, WhatTheClampCutsOffBesideIsItsDoing) {
  DumpGraph g;
  g.pass();
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const auto x = [=](std::int64_t row, std::int64_t channel) {
      const float small = testing::noise(3 + static_cast<std::uint32_t>(layer), 3)(row, channel);
      return layer > 0 || row == 0 ? small : row == 1 ? kNan : 30 + small;
    };
    const TensorId up = g.op("up_proj", OpKind::gemm, {}, {.channels = 32, .fill = x});
    g.op("act", OpKind::activation, {{"x", up}}, {.channels = 32, .fill = [=](auto row, auto channel) {
                                                    const float from = x(row, channel);
                                                    const float made = from / (1 + std::exp(-from));
                                                    return std::fmax(-7.0F, std::fmin(7.0F, made));
                                                  }});
  }
  EXPECT_THAT(classes(diagnosis_of(g)), ElementsAre("nan-laundered"));
}

TEST(NanLaundered, ACacheThatWasNotDumpedHidesItFromWhatIsReadBack) {
  DumpGraph g;
  g.pass();
  const TensorId v = g.op("v_proj", OpKind::gemm, {}, {.role = "v", .fill = row_of(1, kNan)});
  const TensorId read = g.op("v_read", OpKind::kv_read, {{"v", v}}, {.role = "v_read", .axis = Axis::keys});
  g.op("attention", OpKind::attention, {{"v", read}});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_EQ(root_of(found), "nan-laundered");
  EXPECT_EQ(found.faults[0].tensor, "p1.v_read.v_read");
}

}  // namespace
}  // namespace nanscope
