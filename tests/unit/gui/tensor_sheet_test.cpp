#include "gui/prepare/tensor_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "gui/prepare/tensor_statistics.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui::tensor_sheet_test {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Place place_of(const std::string& text) { return *parse_place(text); }

/// A step of three tokens: v_proj 1000 in [1,2] and 448 in [2,0], else 3; v_codes with scale 1; scores of two heads.
RunBuilder small_run(bool stale = false) {
  RunBuilder builder;
  builder.request(0, {5, 6, 7});
  builder.step(0, 0, 10, 3);
  builder.op(1, "v_proj", "gemm", {});
  const std::int64_t v = builder.output("out", {3, 4, 10, 2}, [](std::int64_t row, std::int64_t channel) {
    if (row == 1 && channel == 2) return 1000.0F;
    return row == 2 && channel == 0 ? 448.0F : 3.0F;
  });
  builder.op(1, "kv_store", "kv_store", {{"k", v}, {"v", v}}, R"({"policy":"locked","scale_k":1,"scale_v":1})");
  ScaleRow scale;
  scale.scale = 1;
  scale.calibrated_step = stale ? 0 : builder.current_step;
  builder.store("v", v, scale);
  builder.op(1, "scores", "attention_scores", {});
  builder.output("out", {3, 6, 10, 2}, [](std::int64_t row, std::int64_t channel) {
    if (channel == 4) return kNotANumber;
    return row == 0 && channel == 0 ? -kInfinity : 0.0F;
  });
  builder.op(1, "inner_norm", "layer_norm", {});
  builder.output("stats", {3, 3, 10, 1}, constant(1));
  builder.output("out", {3, 4, 10, 1}, constant(1));
  return builder;
}

std::shared_ptr<const TensorSheet> sheet_of(RunBuilder& builder, const std::string& place, SheetOptions options = {},
                                            const TensorSheet* known = nullptr) {
  auto sheet = make_tensor_sheet(BuiltView(builder), place_of(place), options, known);
  EXPECT_TRUE(sheet) << sheet.error().message;
  return sheet ? *sheet : nullptr;
}

TEST(Subject, WithoutARoleTakesTheOutput) {
  RunBuilder builder = small_run();
  EXPECT_EQ(find_subject(BuiltView(builder), place_of("0/0/1/inner_norm"))->tensor.role, "out");
  EXPECT_EQ(find_subject(BuiltView(builder), place_of("0/0/1/inner_norm.stats"))->tensor.role, "stats");
  EXPECT_EQ(find_subject(BuiltView(builder), place_of("0/0/1/inner_norm"))->outputs.size(), 2U);
}

TEST(Subject, SaysWhatIsMissing) {
  RunBuilder builder = small_run();
  EXPECT_EQ(find_subject(BuiltView(builder), {}).error().message, "Nothing is selected");
  EXPECT_THAT(find_subject(BuiltView(builder), place_of("0/7/1/v_proj")).error().message,
              ::testing::HasSubstr("step 7"));
  EXPECT_THAT(find_subject(BuiltView(builder), place_of("0/0/3/v_proj")).error().message,
              ::testing::HasSubstr("v_proj"));
}

TEST(Subject, TokensArePositionsAndOthersAreNoRow) {
  RunBuilder builder = small_run();
  const Subject subject = *find_subject(BuiltView(builder), place_of("0/0/1/v_proj"));
  EXPECT_EQ(row_of(subject, place_of("0/0/1/v_proj[11,2]")), 1);
  EXPECT_FALSE(row_of(subject, place_of("0/0/1/v_proj[13,2]")));
  EXPECT_FALSE(row_of(subject, place_of("0/0/1/v_proj[9,2]")));
  EXPECT_FALSE(channel_of(subject.tensor, place_of("0/0/1/v_proj[11,4]")));
}

TEST(TensorSheet, ClippedIsWhatWasBeyondTheEndAndNotWhatLandedOnIt) {
  RunBuilder builder = small_run();
  const auto sheet = sheet_of(builder, "0/0/1/kv_store.v_codes");
  ASSERT_TRUE(sheet->elements);
  EXPECT_EQ(sheet->elements->value(1, 2), 448);
  EXPECT_EQ(sheet->elements->value(2, 0), 448);
  EXPECT_EQ(sheet->cell(1, 2), kClipped);
  EXPECT_NE(sheet->cell(2, 0), kClipped) << "448 is exactly the largest finite value";
  EXPECT_EQ(std::count(sheet->cells.begin(), sheet->cells.end(), kClipped), 1);
  EXPECT_FLOAT_EQ(sheet->row_health[1].clipped, 0.25F);
  EXPECT_FLOAT_EQ(sheet->column_health[2].clipped, 1.0F / 3);
}

TEST(TensorSheet, WithoutTheValueBeforeStoringTheRowTells) {
  RunBuilder builder = small_run();
  builder.run.op_rows[1].attributes = R"({"policy":"per_token","scale_v":1})";
  const auto sheet = sheet_of(builder, "0/0/1/kv_store.v_codes");
  EXPECT_FALSE(sheet->scale);
  EXPECT_EQ(sheet->cell(1, 2), kClipped);
  EXPECT_NE(sheet->cell(1, 1), kClipped);
  EXPECT_NE(sheet->cell(2, 0), kClipped) << "nothing of that row was clipped";
}

TEST(TensorSheet, AScaleOfAnotherStepMakesHeadroomTell) {
  RunBuilder own = small_run(false);
  EXPECT_LE(sheet_of(own, "0/0/1/kv_store.v_codes")->cell(2, 0), kHealthyLast);
  RunBuilder stale = small_run(true);
  EXPECT_EQ(sheet_of(stale, "0/0/1/kv_store.v_codes")->cell(2, 0), kLowHeadroom);
}

TEST(TensorSheet, ShowsScoresByHead) {
  RunBuilder builder = small_run();
  const auto first = sheet_of(builder, "0/0/1/scores");
  EXPECT_EQ(first->columns, 3);
  EXPECT_EQ(first->heads, 2);
  EXPECT_EQ(first->head, 0);
  EXPECT_EQ(first->cell(0, 0), kAbsent) << "-Inf hides a key from its query";
  EXPECT_EQ(first->inf, 0U);
  EXPECT_EQ(first->cell(1, 0), kZero);
  EXPECT_FLOAT_EQ(first->column_health[0].inf, 0);
  const auto second = sheet_of(builder, "0/0/1/scores[10,4]");
  EXPECT_EQ(second->head, 1) << "the head of the selected key";
  EXPECT_EQ(second->channel(1), 4);
  for (std::int64_t row = 0; row < 3; ++row) EXPECT_EQ(second->cell(row, 1), kNan);
  EXPECT_FLOAT_EQ(second->column_health[1].nan, 1);
  EXPECT_EQ(sheet_of(builder, "0/0/1/scores[10,4]", {Ramp::log, 0})->head, 0) << "the one asked for";
}

TEST(TensorSheet, LogarithmicAndLinearRamps) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, 1);
  builder.op(0, "norm", "layer_norm", {});
  builder.output("out", {1, 4, 0, 1}, [](std::int64_t, std::int64_t channel) {
    const float values[] = {0.01F, -1, 50, 100};
    return values[channel];
  });
  const auto log = sheet_of(builder, "0/0/0/norm");
  EXPECT_DOUBLE_EQ(log->high, 100);
  EXPECT_NEAR(log->low, 0.01, 1e-9);
  EXPECT_EQ(log->cell(0, 0), kHealthyFirst);
  EXPECT_EQ(log->cell(0, 3), kHealthyLast);
  EXPECT_NEAR(log->cell(0, 1), kHealthyFirst + kHealthySteps / 2, 1) << "1 is half way from 0.01 to 100";
  const auto linear = sheet_of(builder, "0/0/0/norm", {Ramp::linear, {}});
  EXPECT_EQ(linear->cell(0, 0), kHealthyFirst);
  EXPECT_EQ(linear->cell(0, 1), kHealthyFirst);
  EXPECT_NEAR(linear->cell(0, 2), kHealthyFirst + kHealthySteps / 2, 1);
  EXPECT_EQ(linear->cell(0, 3), kHealthyLast);
}

TEST(TensorSheet, FetchesKnownElementsOnce) {
  RunBuilder builder = small_run();
  const auto sheet = sheet_of(builder, "0/0/1/v_proj");
  EXPECT_EQ(builder.tensors.fetches, 1);
  const auto again = sheet_of(builder, "0/0/1/v_proj", {Ramp::linear, {}}, sheet.get());
  EXPECT_EQ(builder.tensors.fetches, 1);
  EXPECT_EQ(again->elements, sheet->elements);
  sheet_of(builder, "0/0/1/scores", {}, sheet.get());
  EXPECT_EQ(builder.tensors.fetches, 2);
}

TEST(TensorSheet, WithoutElementsShowsTheHealthOfRows) {
  RunBuilder builder = small_run();
  builder.tensors.data.clear();
  const auto sheet = sheet_of(builder, "0/0/1/kv_store.v_codes");
  EXPECT_FALSE(sheet->elements);
  EXPECT_NE(sheet->problem, "");
  EXPECT_EQ(sheet->columns, 1);
  ASSERT_EQ(sheet->rows, 3);
  EXPECT_EQ(sheet->cell(1, 0), kClipped);
  EXPECT_NE(sheet->cell(0, 0), kClipped);
}

TEST(TensorSheet, RefusesElementsOfAnotherShape) {
  RunBuilder builder = small_run();
  for (auto& [id, data] : builder.tensors.data) data.bytes.pop_back();
  const auto sheet = sheet_of(builder, "0/0/1/v_proj");
  EXPECT_FALSE(sheet->elements);
  EXPECT_THAT(sheet->problem, ::testing::HasSubstr("shape"));
}

TEST(TensorPicture, OneNanAmongAMillionIsSeenAndPointedAt) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, 1000);
  builder.op(0, "norm", "layer_norm", {});
  builder.output("out", {1000, 1000, 0, 1}, [](std::int64_t row, std::int64_t channel) {
    return row == 777 && channel == 123 ? kNotANumber : static_cast<float>(channel);
  });
  const auto sheet = sheet_of(builder, "0/0/0/norm");
  const TensorPicture picture = make_tensor_picture(sheet, {}, 60, 40);
  EXPECT_EQ(picture.image.width, 60);
  EXPECT_EQ(picture.image.height, 40);
  EXPECT_EQ(std::count(picture.image.texels.begin(), picture.image.texels.end(), kNan), 1);
  const auto bad = [](const std::vector<LineHealth>& bars) {
    return std::count_if(bars.begin(), bars.end(), [](const LineHealth& bar) { return bar.nan > 0; });
  };
  EXPECT_EQ(bad(picture.row_bars), 1);
  EXPECT_EQ(bad(picture.column_bars), 1);
  EXPECT_EQ(worst_element(*sheet, {100, 140, 750, 800}), (std::pair<std::int64_t, std::int64_t>{777, 123}));
  EXPECT_EQ(bad(make_tensor_picture(sheet, FrontRange{200, 300, 0, 1000}, 60, 40).row_bars), 1)
      << "a row's bar speaks of the whole row";
}

TEST(TensorPicture, AnEmptyTensorIsAnEmptyPicture) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, 1);
  builder.op(0, "norm", "layer_norm", {});
  builder.output("out", {0, 0, 0, 1}, constant(1));
  const TensorPicture picture = make_tensor_picture(sheet_of(builder, "0/0/0/norm"), {}, 60, 40);
  EXPECT_TRUE(picture.image.texels.empty());
}

/// One row of eight values under `format`.
RunBuilder row_of(const std::vector<float>& values, Format format = Format::f32) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, 1);
  builder.op(0, "norm", "layer_norm", {});
  builder.output(
      "out", {1, std::ssize(values), 0, 1},
      [values](std::int64_t, std::int64_t channel) { return values[static_cast<std::size_t>(channel)]; }, format);
  return builder;
}

TEST(TensorStatistics, CountsWhatIsThereAndNoneOfWhatIsNotFinite) {
  RunBuilder builder = row_of({1, -3, 0, kNotANumber, kInfinity, -kInfinity, 5, 1.5F});
  const TensorStatistics all = tensor_statistics(*sheet_of(builder, "0/0/0/norm"));
  EXPECT_TRUE(all.whole);
  EXPECT_EQ(all.elements, 8U);
  EXPECT_EQ(all.finite, 5U);
  EXPECT_EQ(all.nan, 1U);
  EXPECT_EQ(all.positive_inf, 1U);
  EXPECT_EQ(all.negative_inf, 1U);
  EXPECT_EQ(all.zero, 1U);
  EXPECT_EQ(all.min, -3);
  EXPECT_EQ(all.max, 5);
  EXPECT_EQ(all.absmax, 5);
  EXPECT_DOUBLE_EQ(all.mean, 0.9);
  EXPECT_NEAR(all.deviation, 2.5768197453450252, 1e-12) << "numpy.std([1, -3, 0, 5, 1.5])";
  ASSERT_EQ(all.values.size(), 3U);
  EXPECT_EQ(all.values[0].exponent, 0);
  EXPECT_EQ(all.values[0].positive, 2U) << "1 and 1.5";
  EXPECT_EQ(all.values[1].negative, 1U) << "-3";
  EXPECT_EQ(all.values[2].positive, 1U) << "5";
  EXPECT_EQ(all.code_shift, 24);
  EXPECT_EQ(all.codes[0x3F], 2U) << "the high bytes of 1 and 1.5";
}

TEST(TensorStatistics, OfAPartAndOfNothing) {
  RunBuilder builder = row_of({1, 2, 4, 8, 16, 32, 64, 128});
  const auto sheet = sheet_of(builder, "0/0/0/norm");
  const TensorStatistics part = tensor_statistics(*sheet, FrontRange{2, 4, 0, 1});
  EXPECT_FALSE(part.whole);
  EXPECT_EQ(part.elements, 2U);
  EXPECT_EQ(part.mean, 6);
  EXPECT_EQ(tensor_statistics(*sheet, FrontRange{5, 90, -3, 9}).elements, 3U) << "what lies outside is left out";
  EXPECT_EQ(tensor_statistics(*sheet, FrontRange{4, 4, 0, 1}).finite, 0U);
  EXPECT_TRUE(tensor_statistics(*sheet, FrontRange{4, 4, 0, 1}).values.empty());
}

TEST(TensorSheet, GoesFromBadElementToBadElementAndRoundTheEnds) {
  RunBuilder builder = row_of({1, kNotANumber, 1, 1, kInfinity, 1, 1, 1});
  const auto sheet = sheet_of(builder, "0/0/0/norm");
  using At = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(next_bad(*sheet, {0, -1}, true), (At{0, 1}));
  EXPECT_EQ(next_bad(*sheet, {0, 1}, true), (At{0, 4}));
  EXPECT_EQ(next_bad(*sheet, {0, 4}, true), (At{0, 1}));
  EXPECT_EQ(next_bad(*sheet, {0, 7}, true), (At{0, 1}));
  EXPECT_EQ(next_bad(*sheet, {0, 4}, false), (At{0, 1}));
  EXPECT_EQ(next_bad(*sheet, {0, 0}, false), (At{0, 4}));
  RunBuilder one = row_of({kNotANumber, 1});
  EXPECT_EQ(next_bad(*sheet_of(one, "0/0/0/norm"), {0, 0}, true), (At{0, 0}));
  EXPECT_EQ(next_bad(*sheet_of(one, "0/0/0/norm"), {0, 0}, false), (At{0, 0}));
  RunBuilder healthy = row_of({1, 2, 3});
  EXPECT_FALSE(next_bad(*sheet_of(healthy, "0/0/0/norm"), {0, 1}, true));
  EXPECT_FALSE(next_bad(*sheet_of(healthy, "0/0/0/norm"), {0, 1}, false));
}

TEST(TensorSheet, SignsHaveColoursOfTheirOwnAndTheLargerOneWins) {
  RunBuilder builder = row_of({-4, 4, -1, 1});
  SheetOptions options;
  options.signs = true;
  const auto sheet = sheet_of(builder, "0/0/0/norm", options);
  EXPECT_EQ(sheet->cell(0, 0), signed_cell(kSignedSteps - 1, true));
  EXPECT_EQ(sheet->cell(0, 1), signed_cell(kSignedSteps - 1, false));
  EXPECT_LT(sheet->cell(0, 3), sheet->cell(0, 0)) << "cells shown as one are shown as the largest magnitude";
  EXPECT_EQ(ramp_part(sheet->cell(0, 0), true), 1);
  EXPECT_EQ(ramp_part(sheet->cell(0, 2), true), 0);
}

TEST(TensorSheet, TheRampCoversWhatItIsToldTo) {
  RunBuilder builder = row_of({0.5F, 1, 2, 1000});
  SheetOptions options;
  options.range.typed = MagnitudeRange{1, 2};
  const auto typed = sheet_of(builder, "0/0/0/norm", options);
  EXPECT_EQ(typed->low, 1);
  EXPECT_EQ(typed->high, 2);
  EXPECT_EQ(typed->cell(0, 0), kHealthyFirst) << "below the ramp";
  EXPECT_EQ(typed->cell(0, 3), kHealthyLast) << "above it";
  options.range = {std::nullopt, FrontRange{0, 3, 0, 1}};
  const auto part = sheet_of(builder, "0/0/0/norm", options);
  EXPECT_EQ(part->low, 0.5);
  EXPECT_EQ(part->high, 2);
}

TEST(TensorPicture, OneInfinityAmongMillionsIsMarked) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, 512);
  builder.op(0, "norm", "layer_norm", {});
  builder.output("out", {512, 4096, 0, 1}, [](std::int64_t row, std::int64_t channel) {
    return row == 300 && channel == 3001 ? kInfinity : 1.0F;
  });
  const TensorPicture picture = make_tensor_picture(sheet_of(builder, "0/0/0/norm"), {}, 500, 300);
  ASSERT_EQ(picture.image.marks.size(), 1U);
  EXPECT_TRUE(picture.image.marks[0].lone);
  EXPECT_EQ(picture.image.marks[0].worst, kInf);
}

}  // namespace
}  // namespace nanscope::gui::tensor_sheet_test
