#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

/// One value of a tensor that sets the scale of all.
namespace nanscope {
namespace {

using testing::calibrated_scale;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using testing::Fill;
using ::testing::HasSubstr;
using testing::noise;
using testing::number;
using testing::root_of;
using testing::RunBuilder;

/// A recording of one step whose V of 2 x 64 is stored.
RunBuilder stored_with(const Fill& values, const ScaleRow& scale) {
  RunBuilder b;
  b.request(0, {1, 2}, {7});
  b.step(0, 0, 0, 2);
  b.op(0, "v_proj", "gemm", {});
  const auto v = b.output("out", {2, 64, 0, 1}, values);
  b.op(0, "kv_store", "kv_store", {{"v", v}});
  b.store("v", v, scale);
  return b;
}

std::string root(const Fill& values, const ScaleRow& scale) {
  RunBuilder b = stored_with(values, scale);
  return root_of(diagnosis_of(b));
}

/// `large` in channel 5 of row 1, else `rest`.
Fill outlier(float large, float rest) {
  return [=](std::int64_t row, std::int64_t channel) { return row == 1 && channel == 5 ? large : rest; };
}

TEST(OutlierSquash, OneValueTakesEveryCodeOfAnInt8) {
  RunBuilder b = stored_with(outlier(600, 1.5F), calibrated_scale(5, 1, 600, Format::int8));
  const Diagnosis found = diagnosis_of(b);
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(number(found.faults[0], "outlier"), "600");
  EXPECT_EQ(number(found.faults[0], "lost"), "127");
  EXPECT_EQ(number(found.faults[0], "nonzero"), "128");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("127 of 128"));
}

TEST(OutlierSquash, WithoutElementsThePlaceIsTheTensor) {
  RunBuilder b = stored_with(outlier(600, 1.5F), calibrated_scale(5, 1, 600, Format::int8));
  b.tensors.data.clear();
  const Diagnosis found = diagnosis_of(b);
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(place_text(found.faults[0].where), "0/0/0/kv_store.v_codes");
}

TEST(OutlierSquash, AFloatFormatKeepsThem) {
  EXPECT_EQ(root(outlier(600, 1.5F), calibrated_scale(600.0 / 448, 1, 600)), "clean");
}

TEST(OutlierSquash, OfAFloatFormatCodesOfOneBitCount) {
  RunBuilder b = stored_with(outlier(448, 0.006F), calibrated_scale(1, 1, 448));  // the smallest normal e4m3 is 2^-6
  const Diagnosis found = diagnosis_of(b);
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(number(found.faults[0], "coarse"), "127");
  EXPECT_EQ(number(found.faults[0], "lost"), "0");
}

TEST(OutlierSquash, FewLostValuesAreThePriceOfAnyScale) {
  const auto one_in_four = [](std::int64_t row, std::int64_t column) {
    if (row == 1 && column == 5) return 600.0F;
    return column % 4 == 0 ? 1.5F : 300.0F;  // 1.5 / 5 rounds to 0
  };
  EXPECT_EQ(root(one_in_four, calibrated_scale(5, 1, 600, Format::int8)), "clean");
}

TEST(OutlierSquash, ZerosAreNotLost) {
  EXPECT_EQ(root(outlier(600, 0), calibrated_scale(5, 1, 600, Format::int8)), "clean");
}

TEST(OutlierSquash, AScaleThatNoValueAsksForIsNotAnOutliers) {
  EXPECT_EQ(root(constant(1.5F), calibrated_scale(5, 1, 1.5, Format::int8)), "clean");
}

/// A dump's cast of x to int8 under its largest magnitude, which is `large` in [2, 7] among ones.
Diagnosis cast(double large) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 64, .fill = [=](auto row, auto channel) {
                                 return row == 2 && channel == 7 ? static_cast<float>(large) : noise(4)(row, channel);
                               }});
  const TensorId scale = g.parameter("scale", 1, 1, constant(static_cast<float>(large / 127)));
  g.op("x_quantise", OpKind::quantise, {{"x", x}, {"scale", scale}},
       {.role = "codes",
        .channels = 64,
        .fill = testing::codes_of(g, x, large / 127, Format::int8),
        .format = Format::int8});
  return diagnosis_of(g);
}

TEST(OutlierSquash, OfADumpWithItsPlace) {
  const Diagnosis found = cast(400);
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{2, 2}));
  EXPECT_EQ(found.faults[0].where.channels, (Range{7, 7}));
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(OutlierSquash, TenTimesTheOthersIsWhatModelsHave) { EXPECT_EQ(root_of(cast(10)), "clean"); }

/// A weight in e4m3 whose elements but a few are `rest` times as large as noise below 1.
Diagnosis weight_in_codes(double rest) {
  testing::DumpGraph g;
  g.op("down_proj.weight", OpKind::parameter, {},
       {.role = "weight",
        .tokens = 32,
        .channels = 32,
        .fill =
            [=](auto r, auto c) {
              return r == 3 && c == 5 ? 448.0F : static_cast<float>(rest) * testing::noise(7, 1)(r, c);
            },
        .format = Format::e4m3,
        .axis = Axis::none});
  g.pass();
  g.source();
  return testing::diagnosis_of(g, false);
}

TEST(OutlierSquash, OneElementOfAWeightTakesAllCodes) {
  const Diagnosis found = weight_in_codes(0.001);
  EXPECT_EQ(testing::root_of(found), "outlier-squash");
  EXPECT_EQ(testing::number(testing::fault(found, "outlier-squash"), "large"), "1");
  EXPECT_EQ(testing::root_of(weight_in_codes(100)), "clean");
}

TEST(OutlierSquash, ASparseWeightKeepsItsCodes) {
  testing::DumpGraph g;
  g.op("down_proj.weight", OpKind::parameter, {},
       {.role = "weight",
        .tokens = 32,
        .channels = 32,
        .fill = [](auto r, auto c) { return (r + c) % 4 != 0 ? 0.0F : 448 * testing::noise(7, 1)(r, c); },
        .format = Format::e4m3,
        .axis = Axis::none});
  g.pass();
  g.source();
  EXPECT_EQ(testing::root_of(testing::diagnosis_of(g, false)), "clean");
}

}  // namespace
}  // namespace nanscope
