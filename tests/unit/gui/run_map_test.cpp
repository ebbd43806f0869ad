#include "gui/prepare/run_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/core/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

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
  const Result<RunMap> map = make_run_map(builder.run);
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
  const Result<RunMap> map = make_run_map(builder.run);
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
  const Result<RunMap> map = make_run_map(builder.run);
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

TEST(RunMap, KeysThatAreReadConcernAllTokensOfTheStep) {
  RunBuilder builder;
  builder.request(0, {1, 2});
  builder.step(0, 0, 0, 2);
  builder.op(0, "kv_read", "kv_read", {});
  builder.output("k_read", {9, 2, 0, 1}, [](std::int64_t row, std::int64_t) { return row == 8 ? kNotANumber : 1.0F; });
  const Result<RunMap> map = make_run_map(builder.run);
  ASSERT_TRUE(map);
  EXPECT_THAT(map->row(0), ::testing::Each(kNan));
}

TEST(RunMap, RefusesMoreThanAnyScreenShows) {
  RunBuilder builder;
  builder.request(0, {1});
  builder.step(0, 0, 0, std::int64_t{1} << 60);
  EXPECT_FALSE(make_run_map(builder.run));
}

TEST(RunMap, EmptyRunIsAnEmptyMap) {
  nanscope::testing::MemoryRun run;
  const Result<RunMap> map = make_run_map(run);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->columns, 0);
  EXPECT_TRUE(map->cells.empty());
}

TEST(RunMap, StopsWhenAsked) {
  RunBuilder builder = small_run();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(make_run_map(builder.run, stop.get_token()));
}

}  // namespace
}  // namespace nanscope::gui
