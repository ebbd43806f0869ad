#include "gui/prepare/tensor_pair.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui::tensor_pair_test {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Values = std::vector<float>;

/// One op with one row of values.
RunBuilder run_of(const Values& values, Format format = Format::f32, std::int64_t first_token = 0) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, first_token, 1);
  builder.op(1, "norm", "layer_norm", {});
  builder.output(
      "out", {1, static_cast<std::int64_t>(values.size()), first_token, 1},
      [&](std::int64_t, std::int64_t channel) { return values[static_cast<std::size_t>(channel)]; }, format);
  return builder;
}

/// One store of 3, 1000 and 4 as e4m3 or another format, under a scale.
RunBuilder store_of(Format format, double scale, bool per_token = false) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, 1);
  builder.op(1, "v_proj", "gemm", {});
  const std::int64_t v = builder.output("out", {1, 3, 0, 1}, [](std::int64_t, std::int64_t channel) {
    constexpr float kValues[] = {3, 1000, 4};
    return kValues[channel];
  });
  builder.op(1, "kv_store", "kv_store", {{"v", v}},
             fmt::format(R"({{"policy":"{}","scale_v":{}}})", per_token ? "per_token" : "locked", scale));
  ScaleRow row;
  row.format = format;
  row.scale = scale;
  builder.store("v", v, row);
  return builder;
}

SheetPair pair_of(RunBuilder& here, RunBuilder& there, const std::string& place = "0/0/1/norm",
                  const SheetOptions& options = {}, const SheetPair& known = {}) {
  Result<SheetPair> made = make_sheet_pair(BuiltView(here), BuiltView(there), *parse_place(place), options, known);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *std::move(made) : SheetPair{};
}

SheetPair pair_of(const Values& here, const Values& there) {
  RunBuilder a = run_of(here);
  RunBuilder b = run_of(there);
  return pair_of(a, b);
}

TEST(TensorPair, EqualBitsAreEqualAlsoNaN) {
  const SheetPair pair = pair_of({1, kNotANumber, -kInfinity, -0.0F}, {1, kNotANumber, -kInfinity, -0.0F});
  EXPECT_EQ(pair.difference->state, PairState::equal);
  EXPECT_EQ(pair.difference->words, "every element has equal bits");
  EXPECT_THAT(pair.difference->cells, ::testing::Each(kDiffEqual));
  EXPECT_EQ(pair.difference->differing, 0U);
}

TEST(TensorPair, SpecialsHaveCodesOfTheirOwn) {
  const SheetPair pair = pair_of({kNotANumber, 2, kInfinity, kInfinity, -0.0F, 1, kInfinity},
                                 {2, kNotANumber, 2, -kInfinity, 0.0F, 1, kInfinity});
  const TensorDifference& difference = *pair.difference;
  EXPECT_EQ(difference.cells,
            (std::vector<Cell>{kDiffNanHere, kDiffNanThere, kDiffInf, kDiffInf, kDiffBits, kDiffEqual, kDiffEqual}));
  EXPECT_EQ(difference.state, PairState::differs);
  EXPECT_EQ(difference.differing, 5U);
  EXPECT_EQ(difference.nan_here, 1U);
  EXPECT_EQ(difference.nan_there, 1U);
  EXPECT_EQ(difference.words, "5 of 7 elements differ, 1 NaN here only, 1 NaN there only");
  EXPECT_FALSE(difference.largest);
}

TEST(TensorPair, TwoNaNsOfOtherPayloadMeanTheSame) {
  RunBuilder a = run_of({1, 1});
  RunBuilder b = run_of({1, 1});
  for (auto* builder : {&a, &b}) {
    auto& bytes = builder->tensors.data.at(1).bytes;
    const auto code = std::bit_cast<std::array<std::byte, 4>>(builder == &a ? 0x7FC00001U : 0xFFC00000U);
    std::copy(code.begin(), code.end(), bytes.begin());
  }
  const SheetPair pair = pair_of(a, b);
  EXPECT_EQ(pair.difference->cells, (std::vector<Cell>{kDiffBits, kDiffEqual}));
  EXPECT_EQ(words_of(pair_at(*pair.here, *pair.there, 0, 0)), "NaN on both sides, other bits");
}

TEST(TensorPair, FiniteDifferencesHaveASignAndAStep) {
  const SheetPair pair = pair_of({1.001F, 1, 11, 1, 5}, {1, 1.1F, 1, 11, 5});
  const std::vector<Cell>& cells = pair.difference->cells;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_GE(cells[i], kDiffFirst) << i;
    EXPECT_LE(cells[i], kDiffLast) << i;
    EXPECT_EQ((cells[i] - kDiffFirst) % 2, i % 2 == 0 ? 1 : 0) << "odd where the value here is larger, " << i;
  }
  EXPECT_LT(cells[0], cells[1]);
  EXPECT_LT(cells[1], cells[2]);
  EXPECT_EQ(cells[2] / 2, cells[3] / 2) << "of one magnitude";
  EXPECT_EQ(cells[2], kDiffLast);
  EXPECT_EQ(pair.difference->largest, 2) << "the first of the largest";
  EXPECT_DOUBLE_EQ(pair.difference->high, 10);
  EXPECT_NEAR(pair.difference->low, 0.001, 1e-6);
  EXPECT_THAT(pair.difference->words, HasSubstr("4 of 5 elements differ, at most by 10 at [0,2]"));
}

TEST(TensorPair, AnElementSaysHowFarApartItIs) {
  const float next = std::nextafter(2.0F, 3.0F);
  const SheetPair pair = pair_of({next, 3, -0.0F, kNotANumber}, {2, 0, 0, 1});
  const ElementPair first = pair_at(*pair.here, *pair.there, 0, 0);
  EXPECT_EQ(first.ulps, 1U);
  EXPECT_DOUBLE_EQ(*first.difference, static_cast<double>(next) - 2);
  EXPECT_DOUBLE_EQ(*first.relative, (static_cast<double>(next) - 2) / 2);
  EXPECT_EQ(words_of(first), "+2.38419e-07, 1.19e-05 % of there, 1 ulp");
  EXPECT_FALSE(pair_at(*pair.here, *pair.there, 0, 1).relative) << "relative to nothing";
  EXPECT_EQ(words_of(pair_at(*pair.here, *pair.there, 0, 2)), "+0 against -0");
  const ElementPair last = pair_at(*pair.here, *pair.there, 0, 3);
  EXPECT_FALSE(last.difference);
  EXPECT_FALSE(last.ulps);
  EXPECT_EQ(words_of(last), "NaN here only");
}

TEST(TensorPair, CodesOfDifferentFormatsAreComparedByTheirRealValues) {
  RunBuilder here = store_of(Format::e4m3, 0.5);
  RunBuilder there = store_of(Format::f32, 1);
  const SheetPair pair = pair_of(here, there, "0/0/1/kv_store.v_codes");
  EXPECT_EQ(pair.difference->cells[0], kDiffEqual) << "3 / 0.5 x 0.5";
  EXPECT_EQ(pair.difference->cells[1], kDiffLast - 1) << "clipped: smaller here";
  EXPECT_DOUBLE_EQ(pair.difference->high, 1000 - 224);
  EXPECT_THAT(pair.difference->words, HasSubstr("e4m3 here, f32 there"));
  EXPECT_FALSE(pair_at(*pair.here, *pair.there, 0, 1).ulps);
  EXPECT_TRUE(pair.here->real);
  EXPECT_DOUBLE_EQ(pair.here->high, 1000) << "both on one ramp, of real values";
  EXPECT_DOUBLE_EQ(pair.there->high, 1000);
  EXPECT_DOUBLE_EQ(pair.here->low, 3);
  EXPECT_EQ(pair.here->cell(0, 0), pair.there->cell(0, 0)) << "equal values, equal colours";
}

TEST(TensorPair, OneRampCoversBoth) {
  const SheetPair pair = pair_of({1, 2}, {2, 40});
  EXPECT_DOUBLE_EQ(pair.here->high, 40);
  EXPECT_DOUBLE_EQ(pair.there->low, 1);
  EXPECT_EQ(pair.here->cell(0, 1), pair.there->cell(0, 0));
}

TEST(TensorPair, UnknownScalesAreNotCompared) {
  RunBuilder here = store_of(Format::e4m3, 0.5);
  RunBuilder there = store_of(Format::e4m3, 0.5, true);
  const SheetPair pair = pair_of(here, there, "0/0/1/kv_store.v_codes");
  EXPECT_EQ(pair.difference->state, PairState::not_compared);
  EXPECT_THAT(pair.difference->words, HasSubstr("a scale of its own"));
  EXPECT_TRUE(pair.difference->cells.empty());
  EXPECT_TRUE(pair.there);
}

TEST(TensorPair, WithoutATwinThereIsTheSheetAlone) {
  RunBuilder here = run_of({1, 2});
  RunBuilder there;
  there.request(0, {1});
  const SheetPair pair = pair_of(here, there);
  EXPECT_FALSE(pair.there);
  EXPECT_EQ(pair.difference->state, PairState::no_twin);
  EXPECT_TRUE(pair.here->elements);
}

TEST(TensorPair, AnotherOutputOfTheOpIsNoTwin) {
  RunBuilder here = run_of({1, 2});
  RunBuilder there = run_of({1, 2});
  there.run.tensor_rows[0].role = "stats";
  EXPECT_EQ(pair_of(here, there).difference->state, PairState::no_twin);
}

TEST(TensorPair, OtherShapesAndOtherTokensAreSaid) {
  RunBuilder here = run_of({1, 2});
  RunBuilder longer = run_of({1, 2, 3});
  const SheetPair other = pair_of(here, longer);
  EXPECT_EQ(other.difference->state, PairState::other_shape);
  EXPECT_EQ(other.difference->words, "shapes differ: 1 \u00D7 2 here, 1 \u00D7 3 there");
  RunBuilder later = run_of({1, 2}, Format::f32, 5);
  EXPECT_EQ(pair_of(here, later).difference->words, "other tokens there than here");
}

TEST(TensorPair, MissingElementsAreSaid) {
  RunBuilder here = run_of({1, 2});
  RunBuilder there = run_of({1, 2});
  there.tensors.data.clear();
  const SheetPair pair = pair_of(here, there);
  EXPECT_EQ(pair.difference->state, PairState::not_compared);
  EXPECT_EQ(pair.difference->words, "the other run's elements are not to be had: not there");
}

TEST(TensorPair, WhatIsKnownIsUsedAgain) {
  RunBuilder here = run_of({1, 2});
  RunBuilder there = run_of({1, 3});
  const SheetPair pair = pair_of(here, there);
  const int fetches = here.tensors.fetches + there.tensors.fetches;
  EXPECT_EQ(fetches, 2);
  EXPECT_EQ(pair_of(here, there, "0/0/1/norm", {}, pair).difference, pair.difference);
  const SheetPair linear = pair_of(here, there, "0/0/1/norm", {Ramp::linear, {}, {}}, pair);
  EXPECT_NE(linear.difference, pair.difference);
  EXPECT_EQ(here.tensors.fetches + there.tensors.fetches, fetches);
}

/// What was drawn before the other run came.
TEST(TensorPair, ASheetThatStoodAloneGetsItsTwin) {
  RunBuilder here = run_of({1, 2});
  RunBuilder there = run_of({1, 3});
  const SheetPair alone{pair_of(here, there).here, nullptr, nullptr};
  const SheetPair pair = pair_of(here, there, "0/0/1/norm", {}, alone);
  ASSERT_NE(pair.difference, nullptr);
  EXPECT_EQ(pair.difference->differing, 1);
}

TEST(TensorPair, OneNanAmongManyIsSeenInTheDifference) {
  constexpr std::int64_t kSide = 500;
  const auto build = [](bool bad) {
    RunBuilder builder;
    builder.request(0, {1});
    builder.step(0, 0, 0, kSide);
    builder.op(1, "norm", "layer_norm", {});
    builder.output("out", {kSide, kSide, 0, 1}, [bad](std::int64_t row, std::int64_t channel) {
      return bad && row == 333 && channel == 77 ? kNotANumber : static_cast<float>(channel);
    });
    return builder;
  };
  RunBuilder here = build(true);
  RunBuilder there = build(false);
  SheetPair pair = pair_of(here, there);
  EXPECT_EQ(worst_difference(*pair.difference, {50, 100, 300, 400}), (std::pair<std::int64_t, std::int64_t>{333, 77}));
  const TensorPicture picture = make_pair_picture(std::move(pair), "healthy", {}, 20, 20);
  ASSERT_TRUE(picture.twin);
  const std::vector<Cell>& texels = picture.twin->difference.texels;
  EXPECT_EQ(texels.size(), 400U);
  EXPECT_EQ(std::count(texels.begin(), texels.end(), kDiffNanHere), 1);
  EXPECT_EQ(std::count(texels.begin(), texels.end(), kDiffEqual), 399);
  EXPECT_EQ(picture.twin->label, "healthy");
  EXPECT_EQ(picture.twin->there->image.width, 20);
}

}  // namespace
}  // namespace nanscope::gui::tensor_pair_test
