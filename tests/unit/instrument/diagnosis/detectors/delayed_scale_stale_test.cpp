#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

/// Scales that follow their past.
namespace nanscope {
namespace {

using testing::calibrated_scale;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using testing::Fill;
using testing::fixed_scale;
using testing::noise;
using testing::number;
using testing::root_of;
using testing::RunBuilder;

/// A recording of steps of two tokens, whose V is stored under a scale that the test chooses.
struct Stores {
  RunBuilder b;
  std::int64_t steps = 0;

  Stores() { b.request(0, {1, 2}, {7}); }

  void store(const Fill& values, const ScaleRow& scale) {
    b.step(0, steps++, 0, 2);
    b.op(0, "v_proj", "gemm", {});
    const auto v = b.output("out", {2, 64, 0, 1}, values);
    b.op(0, "kv_store", "kv_store", {{"v", v}});
    b.store("v", v, scale);
  }
};

TEST(DelayedScale, OneThatTheValuesLeftBehind) {
  Stores run;
  ScaleRow start = fixed_scale(1);
  start.locked = false;
  run.store(constant(448), start);
  run.store(constant(224), calibrated_scale(1, 1, 448));
  run.store(constant(224), calibrated_scale(0.5, 2, 224));
  run.store(constant(896), calibrated_scale(0.5, 3, 224));
  const Diagnosis found = diagnosis_of(run.b);
  ASSERT_EQ(root_of(found), "delayed-scale-stale");
  EXPECT_EQ(found.faults.size(), 1U) << "and is no locked scale, nor saturation of unknown cause";
  EXPECT_EQ(number(found.faults[0], "headroom"), "0.25");
  EXPECT_EQ(number(found.faults[0], "history_absmax"), "224");
  EXPECT_EQ(number(found.faults[0], "clipped"), "128");
  EXPECT_EQ(found.faults[0].where.step, 3);
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(DelayedScale, DriftWithinTheRangeIsClean) {
  Stores run;
  run.store(constant(448), calibrated_scale(1, -1, 448));
  run.store(constant(450), calibrated_scale(1, 1, 448));
  run.store(constant(440), calibrated_scale(450.0 / 448, 2, 450));
  EXPECT_EQ(root_of(diagnosis_of(run.b)), "clean");
}

TEST(DelayedScale, ALockedScaleIsNone) {
  Stores run;
  ScaleRow locked = calibrated_scale(1, 1, 448);
  locked.locked = true;
  run.store(constant(448), locked);
  run.store(constant(1000), locked);
  EXPECT_EQ(root_of(diagnosis_of(run.b)), "kv-scale-locked");
}

TEST(DelayedScale, NorIsOneThatIsKeptFromItsOwnPrefill) {
  Stores run;
  run.store(constant(448), calibrated_scale(1, 1, 448));
  run.store(constant(1000), calibrated_scale(1, 1, 448));
  run.store(constant(224), calibrated_scale(0.5, 3, 224));
  run.store(constant(1000), calibrated_scale(0.5, 3, 224));
  EXPECT_EQ(root_of(diagnosis_of(run.b)), "kv-scale-locked");
}

/// A cast of x, which reaches `reach`, under the scale of a dumped history whose largest is `largest`.
Diagnosis cast(double reach, float largest, float oldest = 1.0F) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 32, .fill = noise(5, reach)});
  const TensorId history = g.parameter("amax_history", 1, 4, [=](auto, auto at) {
    return at == 0 ? oldest : at == 2 ? largest : 1.0F;
  });
  const double used = static_cast<double>(largest) / 448;
  const TensorId scale = g.parameter("scale", 1, 1, constant(static_cast<float>(used)));
  g.op("q_quantise", OpKind::quantise, {{"x", x}, {"scale", scale}, {"amax_history", history}},
       {.role = "codes", .channels = 32, .fill = testing::codes_of(g, x, used, Format::e4m3), .format = Format::e4m3});
  return diagnosis_of(g);
}

TEST(DelayedScale, ADumpedHistoryThatTheValuesLeftBehind) {
  const Diagnosis found = cast(20, 4);
  ASSERT_EQ(root_of(found), "delayed-scale-stale");
  EXPECT_EQ(found.faults.size(), 1U);
  EXPECT_EQ(number(found.faults[0], "history_absmax"), "4");
  EXPECT_EQ(number(found.faults[0], "history_from"), "p1.amax_history.weight");
}

TEST(DelayedScale, ADumpedHistoryThatHoldsTheValuesIsClean) { EXPECT_EQ(root_of(cast(3.9, 4)), "clean"); }

TEST(DelayedScale, ANaNInTheHistoryExcusesNothing) {
  // The scale is that of the finite ones: the values have left it behind all the same.
  EXPECT_EQ(root_of(cast(20, 4, testing::kNan)), "delayed-scale-stale");
}

}  // namespace
}  // namespace nanscope
