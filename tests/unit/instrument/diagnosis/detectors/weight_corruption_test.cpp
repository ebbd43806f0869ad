#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

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
using ::testing::HasSubstr;
using testing::kNan;
using testing::noise;
using testing::number;
using testing::OneStep;
using testing::root_of;

/// Layers of one projection of 32 x 32; the weight of layer 1 is `weight`, and all outputs follow from weights.
Diagnosis projections_of(const Fill& weight, bool first_layers_too = false, std::int64_t layers = 3) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 32, .fill = noise(1)});
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    g.layer = layer;
    const bool odd = layer == 1 || (first_layers_too && layer == 0);
    const TensorId w =
        g.parameter("o_proj.weight", 32, 32, odd ? weight : noise(30 + static_cast<std::uint32_t>(layer), 0.5));
    const testing::Numbers right =
        testing::product(testing::stored_numbers(g, x, 4, 32), testing::stored_numbers(g, w, 32, 32));
    g.op("o_proj", OpKind::gemm, {{"x", x}, {"weight", w}}, {.channels = 32, .fill = testing::fill_of(right)});
  }
  return diagnosis_of(g);
}

Fill but(std::int64_t row, std::int64_t channel, float value) {
  return [=](std::int64_t r, std::int64_t c) { return r == row && c == channel ? value : noise(9, 0.5)(r, c); };
}

Fill zeros_in(std::int64_t first_row, std::int64_t rows, std::int64_t first, std::int64_t channels) {
  return [=](std::int64_t r, std::int64_t c) {
    const bool zero = r >= first_row && r < first_row + rows && c >= first && c < first + channels;
    return zero ? 0.0F : noise(9, 0.5)(r, c);
  };
}

TEST(WeightCorruption, NaNInAWeight) {
  const Diagnosis found = projections_of(but(3, 4, kNan));
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_EQ(found.faults[0].tensor, "p1.o_proj.weight1.weight");
  EXPECT_EQ(number(found.faults[0], "nan"), "1");
  EXPECT_EQ(number(found.faults[0], "first_at"), "100");  // 3 * 32 + 4
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_FALSE(found.faults[0].because.has_value());
}

/// The output was computed from another weight than the one in the dump.
TEST(WeightCorruption, NaNInAWeightWhoseOutputIsFinite) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 32, .fill = noise(1)});
  const TensorId w = g.parameter("o_proj.weight", 32, 32, but(3, 4, kNan));
  g.op("o_proj", OpKind::gemm, {{"x", x}, {"weight", w}}, {.channels = 32, .fill = noise(2)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ::testing::Contains("weight-corruption"));
  EXPECT_EQ(root_of(found), "weight-corruption");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("is finite: it was not computed from these elements"));
}

struct BadChannel {
  std::int64_t rows = 8;
  float value = kNan;   ///< in channel 7
  double others = 1.0;  ///< the size of the other channels
  Format format = Format::f32;
};

/// A product without its weight, whose output is `value` in channel 7 of each row.
Diagnosis bad_channel_of(const BadChannel& bad) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, bad.rows, 0, bad.rows}}, bad.rows);
  const TensorId x = g.source({.tokens = bad.rows, .channels = 32, .fill = noise(1), .format = bad.format});
  g.op("o_proj", OpKind::gemm, {{"x", x}},
       {.tokens = bad.rows,
        .channels = 64,
        .fill = [bad](std::int64_t row,
                      std::int64_t channel) { return channel == 7 ? bad.value : noise(2, bad.others)(row, channel); },
        .format = bad.format});
  return diagnosis_of(g, false);
}

/// Rows that are bad in one of 64 channels at random are all bad in the first one's by chance: of 4 rows in 64^-3 =
/// 4e-6 of all cases, of 5 in 6e-8.
TEST(WeightCorruption, OfAWeightThatWasNotDumpedShowsInAllRows) {
  EXPECT_EQ(root_of(bad_channel_of({.rows = 5})), "weight-corruption");
  EXPECT_NE(root_of(bad_channel_of({.rows = 4})), "weight-corruption");
}

/// The inputs have a length of some 5.7: a row that leaves f16 has one above 65504 / 8. Other channels near 1 need one
/// of 1, channels of thousands one of thousands.
TEST(WeightCorruption, IsNotWhereAnOrdinaryWeightLeavesTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(root_of(bad_channel_of({.value = infinity, .others = 8000, .format = Format::f16})), "f16-overflow");
  EXPECT_EQ(root_of(bad_channel_of({.value = infinity, .format = Format::f16})), "weight-corruption");
  EXPECT_EQ(root_of(bad_channel_of({.value = infinity})), "weight-corruption");
  EXPECT_EQ(root_of(bad_channel_of({.others = 8000, .format = Format::f16})), "weight-corruption") << "a NaN";
}

TEST(WeightCorruption, AFlippedExponentBit) {
  const Diagnosis found = projections_of(but(3, 4, 1e6F));
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_EQ(number(found.faults[0], "largest"), "1e+06");
  EXPECT_FALSE(found.faults[0].breaks);
}

TEST(WeightCorruption, AnOutlierThatTrainingCouldHaveMadeIsClean) {
  EXPECT_EQ(root_of(projections_of(but(3, 4, 40))), "clean");
}

TEST(WeightCorruption, RowsOfZerosAloneAmongItsLike) {
  const Diagnosis found = projections_of(zeros_in(8, 4, 0, 32));
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_EQ(number(found.faults[0], "zero_rows"), "4");
  EXPECT_EQ(number(found.faults[0], "first_row"), "8");
}

TEST(WeightCorruption, ABlockOfZerosAloneAmongItsLike) {
  const Diagnosis found = projections_of(zeros_in(8, 16, 16, 16));
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_EQ(number(found.faults[0], "zero_rows"), "16");
  EXPECT_EQ(number(found.faults[0], "first_channel"), "16");
  EXPECT_EQ(number(found.faults[0], "channels"), "16");
}

TEST(WeightCorruption, ZerosThatMostOfItsLikeHaveAreOfTheModel) {
  EXPECT_EQ(root_of(projections_of(zeros_in(8, 4, 0, 32), true)), "clean");
}

TEST(WeightCorruption, ScatteredZerosArePruned) {
  const auto pruned = [](std::int64_t r, std::int64_t c) {
    return (r * 7 + c * 3) % 4 < 2 ? 0.0F : noise(9, 0.5)(r, c);
  };
  EXPECT_EQ(root_of(projections_of(pruned)), "clean");
}

TEST(WeightCorruption, OfARecordingThatUsesIt) {
  OneStep one;
  one.b.weight("w", 2);
  const auto out = one.add("o_proj", "gemm", {{"x", one.x}, {"weight", 0, "w"}}, kNan);
  one.head(out, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("weight-corruption", "argmax-nan-fallback"));
  EXPECT_EQ(found.faults[0].tensor, "w");
  EXPECT_EQ(found.faults[1].because, 0U);
}

TEST(WeightCorruption, OneThatNothingReadsIsClean) {
  OneStep one;
  one.b.weight("unused", 2);
  one.head(one.x, 1, 7);
  EXPECT_EQ(root_of(diagnosis_of(one.b)), "clean");
}

TEST(WeightCorruption, AChannelThatStandsOutInEveryLayerWasTrainedSo) {
  EXPECT_EQ(root_of(projections_of(but(3, 4, 40000))), "weight-corruption");
  EXPECT_EQ(root_of(projections_of(but(3, 4, 40000), true)), "clean");
}

TEST(WeightCorruption, TwoLayersOfManyAreNotAllOfThem) {
  EXPECT_EQ(root_of(projections_of(but(3, 4, 40000), true, 6)), "weight-corruption");
}

}  // namespace
}  // namespace nanscope
