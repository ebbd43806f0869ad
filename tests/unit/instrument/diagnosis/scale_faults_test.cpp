#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"

/// Scales that follow their past, or one value of their tensor.
namespace nanscope {
namespace {

using testing::constant;
using testing::Fill;
using ::testing::HasSubstr;
using testing::number;
using testing::RunBuilder;

/// A run of steps of two tokens, whose V is stored under a scale that the test chooses.
struct Stores {
  RunBuilder b;
  std::int64_t steps = 0;

  Stores() { b.request(0, {1, 2}, {7}); }

  void store(const Fill& values, ScaleRow scale) {
    b.step(0, steps++, 0, 2);
    b.op(0, "v_proj", "gemm", {});
    const auto v = b.output("out", {2, 64, 0, 1}, values);
    b.op(0, "kv_store", "kv_store", {{"v", v}});
    b.store("v", v, scale);
  }
  Diagnosis diagnosis() { return diagnose(b.run, b.tensors, "here").value(); }
};

ScaleRow calibrated(double scale, std::int64_t step, double absmax, Format format = Format::e4m3) {
  ScaleRow row;
  row.format = format;
  row.policy = "some";
  row.scale = scale;
  row.source = ScaleSource::calibrated;
  row.calibrated_step = step;
  row.calibrated_absmax = absmax;
  return row;
}

std::string root_of(const Diagnosis& found) {
  return found.root_cause ? found.faults[*found.root_cause].fault_class : std::string("clean");
}

TEST(DelayedScale, OneThatTheValuesLeftBehind) {
  Stores run;
  ScaleRow start = calibrated(1, -1, 0);
  start.source = ScaleSource::fixed;
  run.store(constant(448), start);
  run.store(constant(224), calibrated(1, 1, 448));
  run.store(constant(224), calibrated(0.5, 2, 224));
  run.store(constant(896), calibrated(0.5, 3, 224));
  const Diagnosis found = run.diagnosis();
  ASSERT_EQ(root_of(found), "delayed-scale-stale");
  EXPECT_EQ(found.faults.size(), 1U) << "and is no locked scale, nor saturation of unknown cause";
  EXPECT_EQ(number(found.faults[0], "headroom"), "0.25");
  EXPECT_EQ(number(found.faults[0], "largest of the history"), "224");
  EXPECT_EQ(number(found.faults[0], "clipped values"), "128");
  EXPECT_EQ(found.faults[0].where.step, 3);
}

TEST(DelayedScale, DriftWithinTheRangeIsClean) {
  Stores run;
  run.store(constant(448), calibrated(1, -1, 448));
  run.store(constant(450), calibrated(1, 1, 448));
  run.store(constant(440), calibrated(450.0 / 448, 2, 450));
  EXPECT_EQ(root_of(run.diagnosis()), "clean");
}

TEST(DelayedScale, ALockedScaleIsNone) {
  Stores run;
  ScaleRow locked = calibrated(1, 1, 448);
  locked.locked = true;
  run.store(constant(448), locked);
  run.store(constant(1000), locked);
  EXPECT_EQ(root_of(run.diagnosis()), "kv-scale-locked");
}

TEST(DelayedScale, NorIsOneThatIsKeptFromItsOwnPrefill) {
  Stores run;
  run.store(constant(448), calibrated(1, 1, 448));
  run.store(constant(1000), calibrated(1, 1, 448));
  run.store(constant(224), calibrated(0.5, 3, 224));
  run.store(constant(1000), calibrated(0.5, 3, 224));
  EXPECT_EQ(root_of(run.diagnosis()), "kv-scale-locked");
}

/// `large` in channel 5 of row 1, else `rest`.
Fill outlier(float large, float rest) {
  return [=](std::int64_t row, std::int64_t channel) { return row == 1 && channel == 5 ? large : rest; };
}

TEST(OutlierSquash, OneValueTakesEveryCodeOfAnInt8) {
  Stores run;
  run.store(outlier(600, 1.5F), calibrated(5, 1, 600, Format::int8));
  const Diagnosis found = run.diagnosis();
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(number(found.faults[0], "outlier"), "600");
  EXPECT_EQ(number(found.faults[0], "lost"), "127");
  EXPECT_EQ(number(found.faults[0], "nonzero"), "128");
  EXPECT_EQ(number(found.faults[0], "ratio at least"), "240");  // 600 / (5 / 2)
  EXPECT_EQ(place_text(found.faults[0].where), "0/0/0/kv_store.v_codes[1,5]");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("127 of 128"));
}

TEST(OutlierSquash, WithoutElementsThePlaceIsTheTensor) {
  Stores run;
  run.store(outlier(600, 1.5F), calibrated(5, 1, 600, Format::int8));
  run.b.tensors.data.clear();
  const Diagnosis found = run.diagnosis();
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(place_text(found.faults[0].where), "0/0/0/kv_store.v_codes");
}

TEST(OutlierSquash, AFloatFormatKeepsThem) {
  Stores run;
  run.store(outlier(600, 1.5F), calibrated(600.0 / 448, 1, 600));
  EXPECT_EQ(root_of(run.diagnosis()), "clean");
}

TEST(OutlierSquash, OfAFloatFormatCodesOfOneBitCount) {
  Stores run;
  run.store(outlier(448, 0.006F), calibrated(1, 1, 448));  // the smallest normal e4m3 is 2^-6
  const Diagnosis found = run.diagnosis();
  ASSERT_EQ(root_of(found), "outlier-squash");
  EXPECT_EQ(number(found.faults[0], "coarse"), "127");
  EXPECT_EQ(number(found.faults[0], "lost"), "0");
}

TEST(OutlierSquash, FewLostValuesAreThePriceOfAnyScale) {
  Stores run;
  const auto one_in_four = [](std::int64_t row, std::int64_t column) {
    if (row == 1 && column == 5) return 600.0F;
    return column % 4 == 0 ? 1.5F : 300.0F;  // 1.5 / 5 rounds to 0
  };
  run.store(one_in_four, calibrated(5, 1, 600, Format::int8));
  EXPECT_EQ(root_of(run.diagnosis()), "clean");
}

TEST(OutlierSquash, ZerosAreNotLost) {
  Stores run;
  run.store(outlier(600, 0), calibrated(5, 1, 600, Format::int8));
  EXPECT_EQ(root_of(run.diagnosis()), "clean");
}

TEST(OutlierSquash, AScaleThatNoValueAsksForIsNotAnOutliers) {
  Stores run;
  run.store(constant(1.5F), calibrated(5, 1, 1.5, Format::int8));
  EXPECT_EQ(root_of(run.diagnosis()), "clean");
}

}  // namespace
}  // namespace nanscope
