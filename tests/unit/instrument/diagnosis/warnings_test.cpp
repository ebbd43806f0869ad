#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/found.h"

/// Values are made here by the arithmetic that a server would do; which warning they deserve follows from the numbers
/// in each test.
namespace nanscope {
namespace {

using testing::diagnosis_of;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using testing::MemoryDump;

std::vector<std::string> kinds_of(MemoryDump& dump) {
  std::vector<std::string> found;
  for (const Warning& warning : diagnosis_of(dump).warnings) found.push_back(warning.kind);
  return found;
}

std::vector<double> wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// Evenly spread, of both signs, the largest `absmax`.
std::vector<float> spread(std::size_t count, float absmax) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float part = static_cast<float>((i * 37) % count + 1) / static_cast<float>(count);
    values[i] = (i % 2 == 0 ? 1.0F : -1.0F) * absmax * part;
  }
  return values;
}

/// To e4m3 by hand (OCP 8-bit formats, 1.0): three bits of mantissa, normal from 2^-6, saturating at 448.
float to_e4m3(float value) {
  const float magnitude = std::min(std::abs(value), 448.0F);
  const float gap = std::ldexp(1.0F, std::max(std::ilogb(std::max(magnitude, 1e-30F)), -6) - 3);
  return std::copysign(std::min(std::nearbyint(magnitude / gap) * gap, 448.0F), value);
}

std::vector<float> cast(const std::vector<float>& values, float scale) {
  std::vector<float> codes;
  for (const float value : values) codes.push_back(to_e4m3(value / scale));
  return codes;
}

/// A step that writes keys into its cache.
void add_keys(MemoryDump& dump, int step, const std::vector<float>& keys, float scale) {
  const std::string at = "step_" + std::to_string(step) + "/model.layers.0.self_attn.";
  const auto tokens = static_cast<std::int64_t>(keys.size() / 64);
  dump.add(at + "k", "f32", {tokens, 4, 16}, wide(keys));
  dump.add(at + "k_scale", "f32", {1}, {double{scale}});
  dump.add(at + "k_cache", "e4m3", {tokens, 4, 16}, wide(cast(keys, scale)));
}

TEST(Warnings, HealthyKeysGiveNone) {
  MemoryDump dump;
  for (int step = 0; step < 5; ++step)
    add_keys(dump, step, spread(512, 10.0F + 0.2F * static_cast<float>(step % 2)), 0.05F);
  EXPECT_THAT(kinds_of(dump), IsEmpty());
  EXPECT_TRUE(diagnosis_of(dump).healthy());
}

/// Headroom 448 x 0.05 / absmax: 5.6, 3.73, 2.49, 1.66; 1.5 times less a step, so that ln 1.66 / ln 1.5 = 1.25 are
/// left. What is cast was not dumped, the keys before their rotation were: known to a ten thousandth.
TEST(Warnings, FallingHeadroomIsFollowedToItsEnd) {
  MemoryDump dump;
  float absmax = 4;
  for (int step = 0; step < 4; ++step, absmax *= 1.5F) add_keys(dump, step, spread(512, absmax), 0.05F);
  const Diagnosis diagnosis = diagnosis_of(dump);
  ASSERT_THAT(kinds_of(dump), ElementsAre("headroom-falling"));
  EXPECT_TRUE(diagnosis.healthy());
  const Warning& warning = diagnosis.warnings.front();
  EXPECT_EQ(warning.tensor, "step_3/model.layers.0.self_attn.k_cache");
  EXPECT_THAT(warning.summary, EndsWith("(limits: 3 steps, 2 times in all, 1.05 times each)"));
  EXPECT_NEAR(std::get<double>(*find(warning.evidence, "headroom")), 448 * 0.05 / 13.5, 1e-6);
  EXPECT_NEAR(std::get<double>(*find(warning.evidence, "factor_a_step")), 1 / 1.5, 1e-3);
  EXPECT_NEAR(std::get<double>(*find(warning.evidence, "steps_to_clipping")),
              std::log(448 * 0.05 / 13.5) / std::log(1.5), 1e-3);
}

TEST(Warnings, HalvesThatGrowAreFollowedToo) {
  MemoryDump dump;
  float absmax = 9000;
  for (int step = 0; step < 3; ++step, absmax *= 2) {
    dump.add("step_" + std::to_string(step) + "/model.layers.0.mlp.down_proj.output", "f16", {8, 64},
             wide(spread(512, absmax)));
  }
  EXPECT_THAT(kinds_of(dump), ElementsAre("headroom-falling"));
}

/// Headroom 2.24 where the scale was set, as absmax / 200 leaves it; 1.05 later.
TEST(Warnings, RoomThatIsUsedUpIsSaid) {
  MemoryDump dump;
  add_keys(dump, 0, spread(512, 10), 0.05F);
  add_keys(dump, 1, spread(512, 448 * 0.05F / 1.05F), 0.05F);
  ASSERT_THAT(kinds_of(dump), ElementsAre("clipping-near"));
  EXPECT_TRUE(diagnosis_of(dump).healthy());
  EXPECT_THAT(diagnosis_of(dump).warnings[0].summary, EndsWith("(limits: 1.5 there, 1.1 here)"));
}

TEST(Warnings, ScalesOfTheirOwnTensorLeaveNoRoomByDesign) {
  MemoryDump dump;
  for (int step = 0; step < 4; ++step) {
    const float absmax = 10.0F + static_cast<float>(step);
    add_keys(dump, step, spread(512, absmax), absmax / 448);
  }
  EXPECT_THAT(kinds_of(dump), IsEmpty());
}

/// One value of 4000 and others up to 1: the scale 4000 / 448 makes codes up to 0.112; below 2^-6 they are coarse, more
/// than a tenth of all.
TEST(Warnings, AnOutlierThatOwnsTheScaleIsSaid) {
  MemoryDump dump;
  std::vector<float> keys = spread(512, 1);
  keys[77] = 4000;
  add_keys(dump, 0, keys, 4000.0F / 448);
  const Diagnosis diagnosis = diagnosis_of(dump);
  EXPECT_TRUE(diagnosis.healthy());
  ASSERT_THAT(kinds_of(dump), ElementsAre("outlier-owns-scale"));
  EXPECT_THAT(diagnosis.warnings[0].summary, EndsWith("(limits: 64 times, 10 % in all)"));
  EXPECT_NEAR(std::get<double>(*find(diagnosis.warnings[0].evidence, "ratio")), 8000, 150);
}

/// A scale of 1 for values up to 0.1: codes up to 0.1, a sixth of them below 2^-6.
TEST(Warnings, CodesThatNobodyUsesAreSaid) {
  MemoryDump dump;
  add_keys(dump, 0, spread(512, 0.1F), 1);
  EXPECT_TRUE(diagnosis_of(dump).healthy());
  ASSERT_THAT(kinds_of(dump), ElementsAre("codes-unused"));
  EXPECT_THAT(diagnosis_of(dump).warnings[0].summary, EndsWith("(limits: 8.96 times, 10 % in all)"));
}

/// The default scale of 1 with values of usual size loses nothing.
TEST(Warnings, AScaleOfOneIsNoWarningByItself) {
  MemoryDump dump;
  add_keys(dump, 0, spread(512, 8), 1);
  EXPECT_THAT(kinds_of(dump), IsEmpty());
}

TEST(Warnings, RowsOfAFewValuesAreSaid) {
  MemoryDump dump;
  std::vector<float> in = spread(512, 4);
  std::fill(in.begin() + 64, in.begin() + 96, 11.2F);
  std::fill(in.begin() + 96, in.begin() + 128, -11.2F);
  dump.add("step_0/model.layers.0.input_layernorm.input", "f32", {8, 64}, wide(in));
  const Diagnosis diagnosis = diagnosis_of(dump);
  ASSERT_THAT(kinds_of(dump), ElementsAre("few-values"));
  EXPECT_THAT(diagnosis.warnings[0].summary, EndsWith("(limit: one value in 16 channels)"));
  EXPECT_EQ(std::get<std::int64_t>(*find(diagnosis.warnings[0].evidence, "distinct_values")), 2);
  EXPECT_EQ(std::get<std::int64_t>(*find(diagnosis.warnings[0].evidence, "row")), 1);
}

/// 1000 and 1000 + 2^-8 in turn: the variance is 2^-18 = 3.8e-6, one pass rounds by half a unit of 24 bits in the sum
/// of the squares, 3.8. The norm computed it in two passes, and came out well.
TEST(Warnings, AVarianceWithinRoundingIsSaidBeforeItIsNan) {
  for (const bool subtracts : {true, false}) {
    MemoryDump dump;
    std::vector<float> in(64);
    std::vector<float> out(64);
    for (std::size_t i = 0; i < in.size(); ++i) {
      // More values than few-values wants.
      in[i] = 1000 + std::ldexp(static_cast<float>(i % 16), -12);
      const float centred = (static_cast<float>(i % 16) - 7.5F) / 4.6F;
      out[i] = subtracts ? centred : 1;
    }
    dump.add("step_0/model.layers.0.input_layernorm.input", "f32", {1, 64}, wide(in));
    dump.add("step_0/model.layers.0.input_layernorm.output", "f32", {1, 64}, wide(out));
    const std::vector<std::string> kinds = kinds_of(dump);
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "variance-near-rounding"), subtracts ? 1 : 0);
  }
}

/// Behind the first fault all numbers are suspect, and what it explains is not told twice.
TEST(Warnings, StopAtTheFirstFault) {
  MemoryDump dump;
  std::vector<float> bad = spread(512, 1);
  bad[3] = NAN;
  dump.add("step_0/model.layers.0.mlp.down_proj.output", "f32", {8, 64}, wide(bad));
  add_keys(dump, 1, spread(512, 0.1F), 1);
  EXPECT_FALSE(diagnosis_of(dump).healthy());
  EXPECT_THAT(kinds_of(dump), IsEmpty());
}

}  // namespace
}  // namespace nanscope
