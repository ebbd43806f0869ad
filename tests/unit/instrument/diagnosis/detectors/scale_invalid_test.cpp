#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using testing::Fill;
using testing::fixed_scale;
using testing::kInf;
using testing::kNan;
using testing::noise;
using testing::number;
using testing::OneStep;
using testing::root_of;

TEST(ScaleInvalid, AZeroInTheLedger) {
  OneStep one;
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", one.x}});
  one.b.store("v", one.x, fixed_scale(0));
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("scale-invalid"));
  EXPECT_EQ(number(found.faults[0], "scale"), "0");
}

TEST(ScaleInvalid, OneComputedFromNaNIsAConsequence) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, kNan);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  ScaleRow scale = fixed_scale(kNan);
  scale.source = ScaleSource::calibrated;
  scale.calibrated_absmax = kNan;
  one.b.store("v", v, scale);
  one.head(v, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_EQ(root_of(found), "invalid-op");
  for (std::size_t i = 1; i < found.faults.size(); ++i) EXPECT_TRUE(found.faults[i].because.has_value()) << i;
}

/// Keys of four tokens, stored under scales of their own; row 2 of the keys holds `row`.
Diagnosis per_token(const Fill& scales, const Fill& keys, const Fill& codes) {
  DumpGraph g;
  g.pass();
  const TensorId k = g.source({.channels = 8, .fill = keys});
  const TensorId scale = g.parameter("k_scale", 4, 1, scales);
  g.op("kv_store", OpKind::kv_store, {{"k", k}, {"k_scale", scale}},
       {.role = "k_codes", .channels = 8, .fill = codes, .format = Format::e4m3});
  return diagnosis_of(g);
}

/// `value` for token 2, else what holds numbers up to 1.
Fill scale_of_two(float value) {
  return [=](std::int64_t row, std::int64_t) { return row == 2 ? value : 1.0F / 448; };
}

Fill codes_but_two(float two) {
  return [=](std::int64_t row, std::int64_t channel) { return row == 2 ? two : 448 * noise(6)(row, channel); };
}

TEST(ScaleInvalid, AZeroAmongScalesOfTokensThatDidHarm) {
  const Diagnosis found = per_token(scale_of_two(0), noise(6), codes_but_two(448));
  ASSERT_EQ(root_of(found), "scale-invalid");
  EXPECT_EQ(number(found.faults[0], "scale"), "0");
  EXPECT_EQ(number(found.faults[0], "row"), "2");
  EXPECT_EQ(number(found.faults[0], "elements"), "8");
}

TEST(ScaleInvalid, AZeroOfARowOfZerosIsWhatQuantisersWrite) {
  const auto keys = [](std::int64_t row, std::int64_t channel) { return row == 2 ? 0.0F : noise(6)(row, channel); };
  EXPECT_EQ(root_of(per_token(scale_of_two(0), keys, codes_but_two(0))), "clean");
}

TEST(ScaleInvalid, ANaNAmongScalesOfTokensWhereverItStands) {
  for (const std::int64_t at : {0, 1, 3}) {
    const auto scales = [=](std::int64_t row, std::int64_t) { return row == at ? kNan : 1.0F / 448; };
    const auto codes = [=](std::int64_t row, std::int64_t channel) { return 448 * noise(6)(row, channel); };
    const Diagnosis found = per_token(scales, noise(6), codes);
    ASSERT_EQ(root_of(found), "scale-invalid") << at;
    EXPECT_EQ(number(found.faults[0], "row"), std::to_string(at));
  }
}

/// A product with codes of a weight under `scale`.
Diagnosis scaled_weight(float scale, bool out_bad) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 8, .fill = noise(1)});
  const TensorId weight =
      g.op("up_proj.weight", OpKind::parameter, {},
           {.role = "weight", .channels = 8, .fill = noise(2, 400), .format = Format::e4m3, .axis = Axis::none});
  const TensorId scales = g.parameter("up_proj.weight_scale", 1, 1, constant(scale));
  const testing::Numbers right =
      testing::product(testing::stored_numbers(g, x, 4, 8), testing::stored_numbers(g, weight, 4, 8));
  g.op("up_proj", OpKind::gemm, {{"x", x}, {"weight", weight}, {"weight_scale", scales}},
       {.fill = [=](auto r, auto c) { return out_bad ? kNan : static_cast<float>(right.at(r, c) * double{scale}); }});
  return diagnosis_of(g);
}

TEST(ScaleInvalid, OfAWeightAndWhatItBreaks) {
  const Diagnosis found = scaled_weight(kNan, true);
  ASSERT_THAT(classes(found), ElementsAre("scale-invalid"));
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_EQ(number(found.faults[0], "scale"), "nan");
  EXPECT_EQ(root_of(scaled_weight(kInf, true)), "scale-invalid");
  EXPECT_EQ(root_of(scaled_weight(-1.0F, false)), "scale-invalid");
  EXPECT_EQ(root_of(scaled_weight(-3.4e38F, true)), "scale-invalid");
}

TEST(ScaleInvalid, ASmallScaleIsOne) { EXPECT_EQ(root_of(scaled_weight(1e-6F, false)), "clean"); }

TEST(ScaleInvalid, TheSameInEveryLayerIsToldOnce) {
  DumpGraph g;
  g.pass();
  for (const std::int64_t layer : {0, 1}) {
    g.layer = layer;
    const TensorId k = g.source({.channels = 8, .fill = noise(6)});
    testing::store(g, k, 4, 8, -1);
  }
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("scale-invalid"));
  EXPECT_EQ(number(found.faults[0], "more_places"), "1");
}

/// A scale for each of the step's four tokens over a pool of eight slots, of which they fill the second four.
TEST(ScaleInvalid, ScalesOfTokensAreThoseOfTheirSlots) {
  DumpGraph g;
  KvStoreAttributes blocks;
  blocks.block_size = 4;
  g.pass();
  const TensorId k = g.source({.channels = 5, .fill = noise(6)});
  const TensorId scale = g.parameter("k_scale", 4, 1, scale_of_two(kNan));
  g.op("kv_store", OpKind::kv_store, {{"k", k}, {"k_scale", scale}},
       {.role = "k_cache",
        .tokens = 8,
        .channels = 5,
        .fill = testing::constant(3),
        .format = Format::e4m3,
        .axis = Axis::slots},
       blocks);
  g.kv(0, 1, 0, 4, 0, KvAction::allocated);
  g.kv(0, 1, 0, 4, 0, KvAction::written);
  const Fault found = testing::fault(diagnosis_of(g, false), "scale-invalid");
  EXPECT_EQ(number(found, "row"), "6");
  EXPECT_EQ(number(found, "elements"), "5");
}

}  // namespace
}  // namespace nanscope
