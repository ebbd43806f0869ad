#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::fixed_scale;
using testing::noise;
using testing::number;
using testing::OneStep;
using testing::root_of;

TEST(Fp8NonsaturatingOverflow, ACastThatDoesNotSaturate) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, 600);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.store("k", one.x, fixed_scale(1), Overflow::overflow);
  one.b.store("v", v, fixed_scale(1), Overflow::overflow);
  one.head(one.x, 1, 7);
  EXPECT_EQ(root_of(diagnosis_of(one.b)), "fp8-nonsaturating-overflow");
}

/// Keys up to `reach`, with that one in [2, 3], cast with a scale of 1.
Diagnosis cast(double reach, bool saturates, double wrong = 1) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 16, .fill = noise(1)});
  TensorId k = 0;
  if (wrong != 1) {
    for (std::int64_t layer = 2; layer >= 0; --layer) {
      g.layer = layer;
      k = testing::linear(g, "k_proj", x, 4, 16, 16, 2 + static_cast<std::uint32_t>(layer), layer == 0 ? wrong : 1).out;
    }
  } else {
    k = g.op("k_rope", OpKind::dumped, {{"x", x}}, {.channels = 16, .fill = [=](auto row, auto channel) {
                                                      return row == 2 && channel == 3 ? static_cast<float>(reach)
                                                                                      : 4 * noise(8)(row, channel);
                                                    }});
  }
  testing::store(g, k, 4, 16, 1, Format::e4m3, saturates);
  return diagnosis_of(g);
}

TEST(Fp8NonsaturatingOverflow, NamesWhatDidNotFit) {
  const Diagnosis found = cast(900, false);
  ASSERT_THAT(classes(found), ElementsAre("fp8-nonsaturating-overflow"));
  EXPECT_EQ(number(found.faults[0], "codes_bad"), "1");
  EXPECT_EQ(number(found.faults[0], "absmax"), "900");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{2, 2}));
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_FALSE(found.faults[0].because.has_value());
}

TEST(Fp8NonsaturatingOverflow, WhatFitsIsClean) { EXPECT_EQ(root_of(cast(440, false)), "clean"); }

TEST(Fp8NonsaturatingOverflow, ASaturatingCastIsAnother) { EXPECT_EQ(root_of(cast(900, true)), "saturation"); }

TEST(Fp8NonsaturatingOverflow, OfValuesThatCameOutTooLargeIsTheirConsequence) {
  const Diagnosis found = cast(0, false, 1000);
  ASSERT_EQ(root_of(found), "wrong-result");
  const Fault fault = testing::fault(found, "fp8-nonsaturating-overflow");
  EXPECT_EQ(fault.because, found.root_cause);
}

}  // namespace
}  // namespace nanscope
