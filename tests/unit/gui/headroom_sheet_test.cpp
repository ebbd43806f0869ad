#include "gui/prepare/headroom_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gui/export/tables.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::RunBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kBirth = std::numeric_limits<double>::quiet_NaN();

/// Two requests of two steps each through embed, a layer of two ops and head; of step i the layer's second op, in f16,
/// holds `values[i]`.
RunBuilder four_steps(const std::vector<double>& values) {
  RunBuilder builder;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto request = static_cast<std::int64_t>(i / 2);
    const auto index = static_cast<std::int64_t>(i % 2);
    if (index == 0) builder.request(request, {5}, {6});
    builder.step(request, index, index, 1);
    const auto out = [&](double value, Format format) {
      const auto stored = static_cast<float>(value);
      builder.output(
          "out", {1, 2, index, 1}, [stored](std::int64_t, std::int64_t) { return stored; }, format);
    };
    builder.op(-1, "embed", "embed", {});
    out(1, Format::f32);
    builder.op(0, "norm", "layer_norm", {});
    out(1, Format::f16);
    builder.op(0, "mlp", "gemm", {});
    out(values[i], Format::f16);
    builder.op(-1, "lm_head", "gemm", {});
    out(3, Format::f32);
  }
  return builder;
}

struct Made {
  explicit Made(RunBuilder made) : builder(std::move(made)), view(builder) {
    Result<TensorIndex> index = make_tensor_index(view, builder.run, nullptr, {});
    EXPECT_TRUE(index) << index.error().message;
    Result<HeadroomSheet> made_sheet =
        make_headroom_sheet(view, std::make_shared<const TensorIndex>(*std::move(index)));
    EXPECT_TRUE(made_sheet) << made_sheet.error().message;
    sheet = *std::move(made_sheet);
  }
  std::string place(std::optional<std::size_t> tensor) const {
    return tensor ? to_string(sheet.index->place(*tensor)) : "none";
  }
  RunBuilder builder;
  BuiltView view;
  HeadroomSheet sheet;
};

TEST(HeadroomSheet, HasARowALayerAndAColumnAStep) {
  const Made made(four_steps({2, 4, 8, 16}));
  EXPECT_THAT(made.sheet.groups, ElementsAre("embed", "layer 0", "head"));
  EXPECT_EQ(made.sheet.columns(), 4);
  ASSERT_EQ(made.sheet.bands.size(), 2U);
  EXPECT_EQ(made.sheet.bands[1].first, 2U);
  EXPECT_EQ(made.place(made.sheet.tensor(StripBy::headroom, 1, 1)), "0/1/0/mlp.out");
  EXPECT_EQ(made.place(made.sheet.tensor(StripBy::absmax, 2, 1)), "1/0/0/mlp.out");
  EXPECT_EQ(made.sheet.tensor(StripBy::absmax, 4, 1), std::nullopt);
  const auto cell = [&](std::int64_t column) { return made.sheet.by_headroom[made.sheet.cell(column, 1)]; };
  EXPECT_LT(cell(0), cell(1)) << "the less headroom the brighter";
  EXPECT_LT(cell(1), cell(3));
}

TEST(HeadroomSheet, ShowsTheFirstOfSeveralThatAreBad) {
  RunBuilder builder;
  builder.request(0, {5}, {6});
  builder.step(0, 0, 0, 1);
  const auto out = [&](const char* op, float second) {
    builder.op(0, op, "gemm", {});
    const auto fill = [second](std::int64_t, std::int64_t c) { return c == 0 ? static_cast<float>(kBirth) : second; };
    builder.output("out", {1, 2, 0, 1}, fill, Format::f16);
  };
  out("q_proj", 1);
  out("o_proj", 100);
  const Made made(std::move(builder));
  EXPECT_EQ(made.place(made.sheet.tensor(StripBy::headroom, 0, 0)), "0/0/0/q_proj.out");
  EXPECT_EQ(made.place(made.sheet.tensor(StripBy::absmax, 0, 0)), "0/0/0/o_proj.out");
}

TEST(HeadroomSheet, ColoursByPowersOfTwo) {
  EXPECT_EQ(headroom_cell(1.3), kHealthyLast - 1);
  EXPECT_EQ(headroom_cell(2), kHealthyLast - 4);
  EXPECT_EQ(headroom_cell(64), kHealthyLast - 24);
  EXPECT_EQ(headroom_cell(128), kHealthyLast - 25);
  EXPECT_EQ(headroom_cell(1e38), kHealthyFirst);
  EXPECT_EQ(headroom_cell(0), kZero);
}

TEST(HeadroomSheet, SaysHowManyStepsBeforeTheNanItWasWarned) {
  const Made made(four_steps({2, 60000, 8, kBirth}));
  EXPECT_EQ(made.place(made.sheet.warning), "0/1/0/mlp.out");
  EXPECT_EQ(made.place(made.sheet.first_bad), "1/1/0/mlp.out");
  EXPECT_EQ(made.sheet.headline,
            "Earliest warning: 0/1/0/mlp.out has headroom 1.09 in request 0 step 1, 2 steps before the first NaN");
  EXPECT_EQ(made.sheet.rule,
            "0/1/0/mlp.out reaches 6e+04 where 6.55e+04 is the largest value that f16 can hold. The first NaN is in "
            "1/1/0/mlp.out");
  EXPECT_EQ(made.sheet.by_headroom[made.sheet.cell(1, 1)], kLowHeadroom);
  EXPECT_EQ(made.sheet.by_absmax[made.sheet.cell(3, 1)], kNan);
}

TEST(HeadroomSheet, SaysWhenNothingWarned) {
  const Made sudden(four_steps({2, 4, kBirth, 8}));
  EXPECT_EQ(sudden.sheet.headline, "Nothing warned: the first sign is the NaN of 1/0/0/mlp.out, in request 1 step 0");
  const Made healthy(four_steps({2, 4, 512, 8}));
  EXPECT_FALSE(healthy.sheet.warning);
  EXPECT_EQ(healthy.sheet.headline,
            "No warning: no headroom is below 1.25, nothing was clipped, there is no NaN and no Inf");
  EXPECT_THAT(healthy.sheet.rule, HasSubstr("The least headroom is 128: 1/0/0/mlp.out reaches 512 where 6.55e+04"));
  const Made passed(four_steps({2, 60000, 8, 8}));
  EXPECT_THAT(passed.sheet.headline, HasSubstr("step 1; no NaN and no Inf followed"));
}

TEST(HeadroomSheet, FollowsATensorOverTheSteps) {
  const Made made(four_steps({2, 4, 8, 40000}));
  const auto tensor = made.sheet.tensor(StripBy::headroom, 0, 1);
  ASSERT_TRUE(tensor);
  const HeadroomCurve curve = make_headroom_curve(made.sheet, *tensor, 0, 4, 100);
  EXPECT_EQ(curve.name, "layer 0 mlp.out");
  ASSERT_EQ(curve.points.size(), 4U);
  EXPECT_EQ(curve.points[2].absmax, 8);
  EXPECT_EQ(curve.points[2].layer, 8);
  EXPECT_EQ(curve.limit, 65504);
  EXPECT_TRUE(curve.near);
  EXPECT_EQ(curve.range.highest, 65504);
  const HeadroomCurve squeezed = make_headroom_curve(made.sheet, *tensor, 0, 4, 2);
  ASSERT_EQ(squeezed.points.size(), 2U);
  EXPECT_EQ(squeezed.points[1].absmax, 40000);
  EXPECT_EQ(make_headroom_curve(made.sheet, *tensor, 1, 2, 100).points.size(), 1U);
}

TEST(HeadroomSheet, LeavesALimitThatIsFarOffOutOfTheAxis) {
  const Made made(four_steps({2, 4, 8, 16}));
  const auto head = made.sheet.tensor(StripBy::headroom, 0, 2);
  ASSERT_TRUE(head);
  const HeadroomCurve curve = make_headroom_curve(made.sheet, *head, 0, 4, 100);
  EXPECT_FALSE(curve.near);
  EXPECT_EQ(curve.range.highest, 3);
}

TEST(HeadroomSheet, KeepsOneBadColumnAmongThousandsOnScreen) {
  std::vector<double> values(3000, 2);
  values[1234] = 60000;
  const Made made(four_steps(values));
  const FrontImage image = make_front_image({made.sheet.by_headroom, made.sheet.columns(), made.sheet.rows()},
                                            {0, 3000, 0, 3}, 500, 60, kLowHeadroom);
  ASSERT_EQ(image.marks.size(), 1U);
  EXPECT_EQ(image.marks[0].worst, kLowHeadroom);
  EXPECT_EQ(image.marks[0].x, 1234 * 500 / 3000);
}

TEST(HeadroomSheet, HasALayerOfAStepARowInATable) {
  const Made made(four_steps({2, 60000, 8, 16}));
  const Table table = table_of(made.sheet);
  ASSERT_EQ(table.rows.size(), 12U);
  EXPECT_THAT(table.rows[4], ElementsAre("0", "1", "layer 0", "0/1/0/mlp.out", "f16", "60000", "65504", "1.09173333",
                                         "low headroom", "60000", "0/1/0/mlp.out"));
}

TEST(HeadroomSheet, IsEmptyWithoutSteps) {
  const Made made{RunBuilder{}};
  EXPECT_EQ(made.sheet.columns(), 0);
  EXPECT_FALSE(made.sheet.warning);
}

}  // namespace
}  // namespace nanscope::gui
