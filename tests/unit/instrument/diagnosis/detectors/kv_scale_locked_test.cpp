#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::noise;
using testing::number;
using testing::SmallCascade;
using testing::store;

/// Two requests whose keys reach 4 and `second`, both stored under the scale of the first.
DumpGraph two_requests(double second, double scale_of_second = 4.0 / 448) {
  DumpGraph g;
  for (std::int64_t request = 0; request < 2; ++request) {
    g.pass({Span{request, 0, 0, 4, 0, 4}});
    const double reach = request == 0 ? 4 : second;
    const TensorId k =
        g.source({.channels = 16, .fill = [=](auto row, auto channel) {
                    return row == 2 && channel == 3 ? static_cast<float>(reach) : noise(7, reach)(row, channel);
                  }});
    store(g, k, 4, 16, request == 0 ? 4.0 / 448 : scale_of_second);
  }
  return g;
}

TEST(KvScaleLocked, ALaterRequestThatExceedsTheScaleOfTheFirst) {
  DumpGraph g = two_requests(40);
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("kv-scale-locked"));
  const Fault& fault = found.faults[0];
  EXPECT_EQ(fault.tensor, "p2.kv_store.k_codes");
  EXPECT_EQ(number(fault, "calibrated_absmax"), "4");
  EXPECT_EQ(number(fault, "absmax"), "40");
  EXPECT_EQ(number(fault, "headroom"), "0.1");
  EXPECT_EQ(fault.where.request, 1);
  EXPECT_FALSE(fault.because.has_value());
  EXPECT_THAT(fault.fix, HasSubstr("per request"));
}

TEST(KvScaleLocked, WhatStillRoundsToTheLargestCodeIsClean) {
  DumpGraph g = two_requests(4.1);  // 4.1 / 4 * 448 = 459.2, nearer to 448 than to 480
  const Diagnosis found = diagnosis_of(g);
  EXPECT_TRUE(found.healthy()) << (found.faults.empty() ? "" : found.faults[0].summary);
  EXPECT_EQ(testing::check(found, "kv-scale-locked").state, Checked::excluded);
}

TEST(KvScaleLocked, AScalePerRequestIsClean) {
  DumpGraph g = two_requests(40, 40.0 / 448);
  EXPECT_TRUE(diagnosis_of(g).healthy());
}

TEST(KvScaleLocked, WithoutTheEarlierRequestTheSameClippingIsSaturation) {
  DumpGraph g;
  g.pass();
  const TensorId k = g.source({.channels = 16, .fill = noise(7, 40)});
  store(g, k, 4, 16, 4.0 / 448);
  EXPECT_THAT(classes(diagnosis_of(g)), ElementsAre("saturation"));
}

TEST(KvScaleLocked, TheLedgerOfARecordingProvesIt) {
  SmallCascade made;
  const Fault fault = testing::fault(diagnosis_of(made.builder), "kv-scale-locked");
  EXPECT_EQ(fault.tensor, "1/0/0/kv_store.v_codes");
  EXPECT_EQ(number(fault, "calibrated_in"), "request 0 step 0");
  EXPECT_EQ(number(fault, "calibrated_absmax"), "1");
  EXPECT_EQ(number(fault, "absmax"), "47");
  EXPECT_EQ(number(fault, "clipped"), "8");
}

TEST(KvScaleLocked, AFewSlightlyClippedValuesAreLessThanRounding) {
  testing::OneStep one;
  one.b.op(0, "v_proj", "gemm", {{"x", one.x}});
  const auto v =
      one.b.output("out", {2, 32, 0, 1}, [](auto row, auto channel) { return row + channel == 0 ? 500.0F : 320.0F; });
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.store("v", v, testing::calibrated_scale(1, 99, 320));
  one.head(one.x, 1, 7);
  EXPECT_TRUE(diagnosis_of(one.b).healthy());
}

}  // namespace
}  // namespace nanscope
