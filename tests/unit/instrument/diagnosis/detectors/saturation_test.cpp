#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::calibrated_scale;
using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::fixed_scale;
using testing::noise;
using testing::number;
using testing::OneStep;

/// A step whose V holds `values` and is stored under `scale`.
Diagnosis stored(const testing::Fill& values, const ScaleRow& scale) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, values);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.store("v", v, scale);
  one.head(one.x, 1, 7);
  return diagnosis_of(one.b);
}

TEST(Saturation, AFixedScaleThatClips) {
  EXPECT_THAT(classes(stored(constant(900), fixed_scale(1))), ElementsAre("saturation"));
}

TEST(Saturation, AScaleThatClipsItsOwnValuesIsNotStale) {
  EXPECT_THAT(classes(stored(constant(900), calibrated_scale(1, 1, 900))), ElementsAre("saturation"));
}

TEST(Saturation, ValuesThatRoundToTheLargestCodeAreNotClipping) {
  // 464 is half way between 448 and 480: below it 448 is the nearest code anyway.
  EXPECT_TRUE(stored(constant(463.9F), fixed_scale(1)).healthy());
}

TEST(Saturation, AnAbsmaxScaleThatTouchesTheTopOnceIsClean) {
  ScaleRow scale = calibrated_scale(3.7F / 448.0F, 1, 3.7F);
  scale.policy = "per_token";
  const auto once = [](auto row, auto channel) { return row + channel == 4 ? 3.7F : 0.5F; };
  EXPECT_TRUE(stored(once, scale).healthy());
}

TEST(Saturation, TheLedgerAloneProvesIt) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, 900);
  one.b.op(0, "kv_store", "kv_store", {{"v", v}});
  one.b.store("v", v, fixed_scale(1));
  one.b.tensors.data.clear();
  one.head(one.x, 1, 7);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("saturation"));
}

/// Codes alone, `top` of 512 at the largest.
Diagnosis of_codes(std::int64_t top) {
  DumpGraph g;
  g.pass();
  g.op("kv_store", OpKind::kv_store, {},
       {.role = "k_codes",
        .channels = 128,
        .fill = [=](auto row,
                    auto channel) { return row * 128 + channel < top ? 448.0F : 200 * noise(3)(row, channel); },
        .format = Format::e4m3});
  return diagnosis_of(g);
}

TEST(Saturation, CodesAloneThatHeapUpAtTheTop) {
  const Diagnosis found = of_codes(60);
  ASSERT_THAT(classes(found), ElementsAre("saturation"));
  EXPECT_EQ(number(found.faults[0], "at_top"), "60");
}

TEST(Saturation, CodesOfTwoBitsThinOutTowardsTheTopInWideSteps) {
  // Every third code is the largest e5m2; of those beside it, an eighth of the range lower, there are as many.
  const auto made = [](float beside) {
    DumpGraph g;
    g.pass();
    g.op("kv_store", OpKind::quantise, {},
         {.role = "k_codes",
          .channels = 16,
          .fill =
              [=](auto row, auto channel) {
                const auto at = (16 * row + channel) % 3;
                return at == 0 ? 57344.0F : at == 1 ? beside : 1024.0F;
              },
          .format = Format::e5m2});
    return diagnosis_of(g).healthy();
  };
  EXPECT_TRUE(made(49152.0F));
  EXPECT_FALSE(made(1024.0F));
}

TEST(Saturation, OneAtTheTopIsWhatAbsmaxScalesLeave) {
  EXPECT_TRUE(of_codes(1).healthy());
  EXPECT_TRUE(of_codes(2).healthy());
}

TEST(Saturation, OfValuesThatCameOutTooLargeIsTheirConsequence) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 16, .fill = noise(1)});
  const auto k = testing::linear(g, "k_proj", x, 4, 16, 16, 2, 64);
  for (std::int64_t layer = 1; layer < 3; ++layer) {  // the same projection, as it should be
    g.layer = layer;
    testing::linear(g, "k_proj", x, 4, 16, 16, 2 + static_cast<std::uint32_t>(layer));
  }
  g.layer = 0;
  testing::store(g, k.out, 4, 16, 4.0 / 448);
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result", "saturation"));
  EXPECT_EQ(found.root_cause, 0U);
  EXPECT_EQ(found.faults[1].because, 0U);
}

/// Values lie beyond what the scale lets through, and their codes do not stand at the top: another scale made them.
TEST(Saturation, CodesThatAreNotAtTheTopWereNotCut) {
  DumpGraph g;
  g.pass();
  const TensorId k = g.source({.channels = 16, .fill = noise(8, 100)});
  testing::store(g, k, 4, 16, 0.01, Format::e4m3, true, 0.5);
  EXPECT_EQ(testing::fault(diagnosis_of(g), "saturation").fault_class, "");
}

/// A pool alone, of which nothing says whose rows it holds.
TEST(Saturation, OfAPoolAlone) {
  DumpGraph g;
  g.pass({}, 0);
  g.op("kv_store", OpKind::kv_store, {},
       {.role = "k_cache",
        .channels = 128,
        .fill = [](auto row, auto channel) { return row * 128 + channel < 60 ? 448.0F : 200 * noise(3)(row, channel); },
        .format = Format::e4m3,
        .axis = Axis::keys});
  EXPECT_THAT(classes(diagnosis_of(g)), ElementsAre("saturation"));
}

TEST(Saturation, InfBesideTheTopIsACastThatDoesNotSaturate) {
  DumpGraph g;
  g.pass();
  g.op("kv_store", OpKind::kv_store, {},
       {.role = "k_codes",
        .channels = 128,
        .fill =
            [](auto row, auto channel) {
              const auto at = row * 128 + channel;
              return at < 60 ? testing::kInf : at < 90 ? 57344.0F : 20000 * noise(3)(row, channel);
            },
        .format = Format::e5m2});
  EXPECT_THAT(classes(diagnosis_of(g)), ElementsAre("fp8-nonsaturating-overflow"));
}

}  // namespace
}  // namespace nanscope
