#include "gui/prepare/step_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gui/export/tables.h"
#include "tests/unit/gui/built_view.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::RunBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two requests of two steps each, through two layers of one op and a head; `values` are of the op in layer 1.
RunBuilder two_requests(const std::vector<float>& values) {
  RunBuilder builder;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto request = static_cast<std::int64_t>(i / 2);
    const auto index = static_cast<std::int64_t>(i % 2);
    if (index == 0) builder.request(request, {5}, {6});
    builder.step(request, index, index, 1);
    const auto out = [&](float value) {
      builder.output("out", {1, 2, index, 1}, [value](std::int64_t, std::int64_t) { return value; });
    };
    builder.op(0, "mlp", "gemm", {});
    out(1);
    builder.op(1, "mlp", "gemm", {});
    out(values[i]);
    builder.op(-1, "lm_head", "gemm", {});
    out(3);
  }
  return builder;
}

struct MadeTimeline {
  explicit MadeTimeline(RunBuilder made, std::optional<std::int64_t> layer = {})
      : builder(std::move(made)), view(builder) {
    Result<TensorIndex> index = make_tensor_index(view, builder.run, nullptr, {});
    EXPECT_TRUE(index) << index.error().message;
    Result<RunMap> map = make_run_map(view, builder.run);
    EXPECT_TRUE(map) << map.error().message;
    auto made_timeline = make_step_timeline(view, *map, std::make_shared<const TensorIndex>(*std::move(index)), layer);
    EXPECT_TRUE(made_timeline) << made_timeline.error().message;
    timeline = *std::move(made_timeline);
  }
  RunBuilder builder;
  BuiltView view;
  StepTimeline timeline;
};

std::vector<float> absmax_of(const ModuleLane& lane) {
  std::vector<float> values;
  for (const ModuleStep& step : lane.steps) values.push_back(step.absmax);
  return values;
}

TEST(StepTimeline, HasALaneARequestAndAModule) {
  const MadeTimeline made(two_requests({2, 4, 8, 0.5F}));
  const StepTimeline& timeline = made.timeline;
  ASSERT_EQ(timeline.columns.size(), 4U);
  ASSERT_EQ(timeline.requests.size(), 2U);
  EXPECT_EQ(timeline.requests[0].cells[2], kAbsent) << "the step of the other request";
  EXPECT_GE(timeline.requests[1].cells[2], kHealthyFirst);
  ASSERT_EQ(timeline.modules.size(), 2U);
  EXPECT_EQ(timeline.modules[0].module, "mlp");
  EXPECT_THAT(absmax_of(timeline.modules[0]), ElementsAre(2, 4, 8, 1)) << "the largest of all layers";
  EXPECT_THAT(absmax_of(timeline.modules[1]), ElementsAre(3, 3, 3, 3));
  EXPECT_EQ(timeline.find(*parse_place("1/0/1/mlp")), 2U);
  EXPECT_EQ(timeline.find(*parse_place("7/0/1/mlp")), std::nullopt);
}

TEST(StepTimeline, OfOneLayerHasItsModulesAlone) {
  const MadeTimeline made(two_requests({2, 4, 8, 0.5F}), 1);
  ASSERT_EQ(made.timeline.modules.size(), 1U);
  EXPECT_THAT(absmax_of(made.timeline.modules[0]), ElementsAre(2, 4, 8, 0.5F));
}

TEST(StepTimeline, FindsTheLargestJump) {
  const MadeTimeline made(two_requests({2, 4, 64, 32}), 1);
  const ModuleLane& lane = made.timeline.modules[0];
  EXPECT_DOUBLE_EQ(lane.jump, 16);
  EXPECT_EQ(lane.jumps_at, 2U);
  EXPECT_THAT(made.timeline.headline, HasSubstr("mlp grows 16 times in request 1 step 0"));
}

TEST(StepTimeline, CountsWhatIsBadAndLosesNoneTogether) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const MadeTimeline made(two_requests({2, nan, 8, 4}), 1);
  const ModuleLane& lane = made.timeline.modules[0];
  EXPECT_EQ(lane.nan, 2U);
  EXPECT_EQ(lane.steps[1].health, kNan);
  const ModuleStep all = together(lane, 0, 4);
  EXPECT_EQ(all.nan, 2U);
  EXPECT_EQ(all.health, kNan);
  EXPECT_EQ(all.absmax, 8);
  EXPECT_EQ(to_string(made.timeline.index->place(all.tensor)), "0/1/1/mlp.out") << "the worst one";
}

TEST(StepTimeline, ATableHasAModuleOfAStepARow) {
  const MadeTimeline made(two_requests({2, 4, 8, 1}), 1);
  const Table table = table_of(made.timeline);
  ASSERT_EQ(table.rows.size(), 4U);
  EXPECT_THAT(table.rows[2], ElementsAre("1", "0", "1", "mlp", "8", "0", "0", "0", "healthy", "1/0/1/mlp.out"));
}

}  // namespace
}  // namespace nanscope::gui
