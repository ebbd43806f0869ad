#include "gui/prepare/run_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "gui/prepare/front_image.h"
#include "gui/prepare/viewport.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui::run_map_test {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;

/// Two requests through embed, one layer of two ops and head; token 1 of request 1 is NaN from the layer on.
RunBuilder small_run() {
  RunBuilder builder;
  const auto pass = [&](std::int64_t first, std::int64_t tokens, std::int64_t bad) {
    const auto fill = [bad](std::int64_t row, std::int64_t) { return row == bad ? kNotANumber : 1.0F; };
    builder.op(-1, "embed", "embed", {});
    builder.output("out", {tokens, 2, first, 1}, constant(1));
    builder.op(0, "norm", "layer_norm", {});
    builder.output("out", {tokens, 2, first, 1}, fill);
    builder.op(0, "q_proj", "gemm", {});
    builder.output("out", {tokens, 2, first, 1}, fill);
    builder.op(-1, "lm_head", "gemm", {});
    builder.output("logits", {1, 2, first + tokens - 1, 1}, constant(1));
  };
  builder.request(0, {5, 6, 7}, {8});
  builder.request(1, {5, 6}, {0});
  builder.step(0, 0, 0, 3);
  pass(0, 3, -1);
  builder.step(0, 1, 3, 1);
  pass(3, 1, -1);
  builder.step(1, 0, 0, 2);
  pass(0, 2, 1);
  return builder;
}

TEST(RunMap, LaysOutTokensByOps) {
  RunBuilder builder = small_run();
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->columns, 6);
  std::vector<std::string> rows;
  for (const MapRow& row : map->rows) rows.push_back(row.group + "/" + row.op);
  EXPECT_THAT(rows, ::testing::ElementsAre("embed/embed", "layer 0/norm", "layer 0/q_proj", "head/lm_head"));
  EXPECT_EQ(map->ops.size(), 12U);
  ASSERT_EQ(map->spans.size(), 3U);
  EXPECT_EQ(map->spans[1].kind, StepKind::decode);
  EXPECT_EQ(map->spans[2].begin, 4);
}

TEST(RunMap, PutsTheNanInItsCell) {
  RunBuilder builder = small_run();
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map);
  for (std::size_t row = 0; row < map->rows.size(); ++row) {
    for (std::int64_t column = 0; column < map->columns; ++column) {
      const bool bad = map->rows[row].layer == 0 && column == 5;
      EXPECT_EQ(map->row(row)[static_cast<std::size_t>(column)] == kNan, bad) << row << ' ' << column;
    }
  }
  EXPECT_EQ(map->row(3)[0], kAbsent) << "the head speaks of the last token alone";
  EXPECT_NE(map->row(3)[2], kAbsent);
  EXPECT_LT(map->request(0)->worst, kClipped);
  EXPECT_EQ(map->request(1)->worst, kNan);
  EXPECT_EQ(map->steps[2].worst, kNan);
}

TEST(RunMap, GoesFromCellsToPlacesAndBack) {
  RunBuilder builder = small_run();
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map);
  EXPECT_EQ(to_string(map->place_at(5, 1)), "1/0/0/norm[1]");
  EXPECT_EQ(to_string(map->place_at(3, 3)), "0/1/-/lm_head[3]");
  for (std::int64_t column = 0; column < map->columns; ++column) {
    EXPECT_EQ(map->find_column(map->place_at(column, 1)), column);
  }
  for (std::size_t op = 0; op < map->ops.size(); ++op) EXPECT_EQ(map->find_op(map->place_of_op(op)), op);
  EXPECT_EQ(map->step_at(-1), nullptr);
  EXPECT_EQ(map->step_at(6), nullptr);
  EXPECT_EQ(map->find_step(1, 7), nullptr);
  EXPECT_FALSE(map->find_op(Place{}));
}

TEST(RunMap, OpsThatRunOnceASpanShareARow) {
  RunBuilder builder;
  builder.request(0, {5, 6}, {});
  builder.request(1, {7}, {});
  builder.step(0, 0, 0, 3);
  builder.run.step_rows.back().spans = {Span{0, 0, 0, 2, 0, 2}, Span{1, 0, 2, 1, 0, 1}};
  for (const std::int64_t span : {0, 1}) {
    builder.op(0, "softmax_" + std::to_string(span), "softmax", {});
    const std::int64_t probs = builder.output("probs", {2 - span, 2, 0, 1}, constant(span == 1 ? kNotANumber : 1));
    TensorRow& row = builder.run.tensor_rows[static_cast<std::size_t>(probs - 1)];
    row.axis = Axis::part;
    row.sequence = span;
  }
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map);
  ASSERT_EQ(map->rows.size(), 1U);
  EXPECT_EQ(map->rows[0].op, "softmax");
  EXPECT_EQ(to_string(map->place_at(1, 0)), "0/0/0/softmax_0[1]");
  EXPECT_EQ(to_string(map->place_at(2, 0)), "1/0/0/softmax_1[0]");
  EXPECT_EQ(map->find_op(map->place_at(2, 0)), 1U);
  EXPECT_EQ(map->row(0)[2], kNan);
  EXPECT_LT(map->row(0)[1], kNan);
}

TEST(RunMap, ARequestDecodesWhereAnotherPrefills) {
  RunBuilder builder;
  builder.request(0, {5, 6}, {});
  builder.request(1, {7}, {8});
  builder.step(0, 0, 0, 3);
  builder.run.step_rows.back().spans = {Span{0, 0, 0, 2, 0, 2}, Span{1, 1, 2, 1, 1, 2}};
  builder.op(0, "norm", "layer_norm", {});
  builder.output("out", {3, 2, 0, 1}, constant(1));
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map);
  ASSERT_EQ(map->spans.size(), 2U);
  EXPECT_EQ(map->spans[0].kind, StepKind::prefill);
  EXPECT_EQ(map->spans[1].kind, StepKind::decode);
  EXPECT_EQ(map->spans[1].steps, 1);
}

TEST(RunMap, KeysThatAreReadConcernAllTokensOfTheStep) {
  RunBuilder builder;
  builder.request(0, {1, 2});
  builder.step(0, 0, 0, 2);
  builder.op(0, "kv_read", "kv_read", {});
  builder.output("k_read", {9, 2, 0, 1}, [](std::int64_t row, std::int64_t) { return row == 8 ? kNotANumber : 1.0F; });
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map);
  EXPECT_THAT(map->row(0), ::testing::Each(kNan));
}

TEST(RunMap, RefusesMoreThanAnyScreenShows) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, std::int64_t{1} << 60);
  EXPECT_FALSE(make_run_map(BuiltView(builder), builder.run));
}

TEST(RunMap, BeginsWithTheWorstOfEachTensorAndThenTellsItsTokensApart) {
  RunBuilder builder = small_run();
  BuiltView view(builder);
  RunMapMaker maker(view, builder.run, {});
  ASSERT_TRUE(maker.begin());
  EXPECT_FALSE(maker.map().exact);
  EXPECT_EQ(maker.map().row(1)[4], kNan) << "the other token of the bad tensor";
  EXPECT_EQ(maker.map().requests[1].worst, kNan);
  // One step at a time, the bad one first.
  ASSERT_TRUE(maker.refine(RunMapMaker::Clock::time_point::min()));
  EXPECT_FALSE(maker.map().exact);
  EXPECT_NE(maker.map().row(1)[4], kNan);
  EXPECT_EQ(maker.map().row(1)[5], kNan);
  ASSERT_TRUE(maker.refine(RunMapMaker::Clock::time_point::min()));
  EXPECT_TRUE(maker.map().exact);
  EXPECT_EQ(maker.map().cells, make_run_map(BuiltView(builder), builder.run)->cells);
}

TEST(RunMap, PositionsThatNoRunHasAreInNoColumn) {
  for (const std::int64_t far : {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    RunBuilder builder = small_run();
    builder.run.tensor_rows[1].first_token = far;
    builder.run.step_rows[1].first_token = ~far;
    const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
    ASSERT_TRUE(map);
    EXPECT_EQ(map->row(1)[0], kAbsent);
  }
}

TEST(RunMap, OpsOfNoStepAreLeftOut) {
  RunBuilder builder = small_run();
  builder.run.op_rows[5].step = 99;
  const Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->ops.size(), 11U);
  for (std::size_t op = 0; op < map->ops.size(); ++op) EXPECT_EQ(map->find_op(map->place_of_op(op)), op);
}

TEST(RunMap, OneNanAmongTenMillionCellsIsSeenAtEveryZoomWhereverItIs) {
  constexpr std::int64_t kTokens = 52'000;
  constexpr int kOps = 200;
  nanscope::testing::MemoryRun run;
  StepRow step;
  step.id = 1;
  step.tokens = step.context = kTokens;
  run.step_rows.push_back(step);
  Health healthy;
  healthy.count = 4;
  healthy.absmax = 1;
  for (int i = 1; i <= kOps; ++i) {
    run.op_rows.push_back({i, 1, i / 10, "op" + std::to_string(i % 10), "gemm", ""});
    TensorRow tensor;
    tensor.id = tensor.op = i;
    tensor.role = "out";
    tensor.tokens = kTokens;
    tensor.health = healthy;
    run.tensor_rows.push_back(tensor);
  }
  for (const auto& [op, token] : {std::pair{1, std::int64_t{0}}, {101, std::int64_t{31337}}, {kOps, kTokens - 1}}) {
    nanscope::testing::MemoryRun bad = run;
    bad.tensor_rows[static_cast<std::size_t>(op - 1)].health.nan = 1;
    auto& detail = bad.detail[op];
    detail.assign(kTokens, healthy);
    detail[static_cast<std::size_t>(token)].nan = 1;
    const Result<RunMap> map = make_run_map(BuiltView(bad), bad);
    ASSERT_TRUE(map);
    ASSERT_GE(map->cells.size(), 10'000'000U);
    ASSERT_EQ(std::count(map->cells.begin(), map->cells.end(), kNan), 1);
    const auto row = static_cast<std::int64_t>(*map->find_op(map->place_of_op(static_cast<std::size_t>(op - 1))));
    Viewport port;
    port.set_grid(map->columns, static_cast<std::int64_t>(map->rows.size()));
    for (int zoom = 0; zoom < 60; ++zoom) {
      const FrontImage image = make_front_image(*map, port.range(), 1353, 889);
      ASSERT_EQ(std::count(image.texels.begin(), image.texels.end(), kNan), 1) << op << ", zoom " << zoom;
      // About the cell, whose place in the view stays; then a little aside.
      const double x = (static_cast<double>(token) + 0.5 - port.left()) / port.width();
      const double y = (static_cast<double>(row) + 0.5 - port.top()) / port.height();
      port.zoom(1.25, 1.2, x, y);
      port.pan(zoom % 2 == 0 ? 0.2 * (x - 0.5) : -0.1 * (0.5 - x), 0);
    }
  }
}

TEST(RunMap, EmptyRunIsAnEmptyMap) {
  nanscope::testing::MemoryRun run;
  const Result<RunMap> map = make_run_map(BuiltView(run), run);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->columns, 0);
  EXPECT_TRUE(map->cells.empty());
}

TEST(RunMap, StopsWhenAsked) {
  RunBuilder builder = small_run();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(make_run_map(BuiltView(builder), builder.run, stop.get_token()));
}

}  // namespace
}  // namespace nanscope::gui::run_map_test
