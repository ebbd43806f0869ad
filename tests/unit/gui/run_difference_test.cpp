#include "gui/prepare/run_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gui/export/tables.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui::run_difference_test {
namespace {

using nanscope::testing::RunBuilder;
using ::testing::Each;
using ::testing::ElementsAre;

/// Two ops in each of two steps, of two tokens and of one. The value of token 1 behind q_proj is `odd`.
RunBuilder run_of(float odd = 1, bool second_step = true) {
  RunBuilder builder;
  builder.request(0, {5, 6}, {7});
  const auto pass = [&](std::int64_t first, std::int64_t tokens) {
    builder.op(0, "norm", "layer_norm", {});
    builder.output("out", {tokens, 2, first, 1}, nanscope::testing::constant(1));
    builder.op(0, "q_proj", "gemm", {});
    builder.output("out", {tokens, 2, first, 1},
                   [=](std::int64_t row, std::int64_t) { return first + row == 1 ? odd : 1.0F; });
  };
  builder.step(0, 0, 0, 2);
  pass(0, 2);
  if (second_step) {
    builder.step(0, 1, 2, 1);
    pass(2, 1);
  }
  return builder;
}

RunDifference difference(RunBuilder& here, RunBuilder& there) {
  const auto map_of = [](RunBuilder& builder) {
    Result<RunMap> map = make_run_map(BuiltView(builder), builder.run);
    EXPECT_TRUE(map) << map.error().message;
    return std::make_shared<const RunMap>(std::move(*map));
  };
  BuiltView run_here(here);
  BuiltView run_there(there);
  RunDifferenceMaker maker(map_of(here), run_here, map_of(there), run_there, {});
  int calls = 0;
  for (; !maker.done(); ++calls) EXPECT_TRUE(maker.refine(RunDifferenceMaker::Clock::time_point::min()));
  EXPECT_EQ(calls, static_cast<int>(here.run.step_rows.size())) << "a step at a time";
  return maker.take();
}

TEST(RunDifference, EqualRunsAreEqualInEveryCell) {
  RunBuilder here = run_of();
  RunBuilder there = run_of();
  const RunDifference found = difference(here, there);
  EXPECT_THAT(found.cells, Each(kCellEqual));
  EXPECT_EQ(found.cells.size(), 6U);
  EXPECT_EQ(found.words(), "all 6 cells have equal bits");
}

TEST(RunDifference, WhatIsWorseHereKeepsTheColourOfItsHealth) {
  RunBuilder here = run_of(kNotANumber);
  RunBuilder there = run_of();
  const RunDifference found = difference(here, there);
  // Rows: norm, q_proj; columns: tokens 0, 1, 2. The other token of the NaN's tensor has the tensor's hash.
  EXPECT_THAT(found.cells, ElementsAre(kCellEqual, kCellEqual, kCellEqual, kCellOtherBits, kNan, kCellEqual));
  EXPECT_EQ(found.words(), "of 6 cells: 1 worse here, 1 with other bits");
  EXPECT_NE(found.cell_there(1, 1), kNan);
  EXPECT_EQ(found.cell(1, 1), kNan);
}

TEST(RunDifference, WhatIsWorseThereHasOneCode) {
  RunBuilder here = run_of();
  RunBuilder there = run_of(kNotANumber);
  const RunDifference found = difference(here, there);
  EXPECT_EQ(found.cell(1, 1), kCellWorseThere);
  EXPECT_EQ(found.cell_there(1, 1), kNan);
  EXPECT_EQ(found.words(), "of 6 cells: 1 worse there, 1 with other bits");
}

TEST(RunDifference, TheSameTroubleInBothIsNoDifferenceOfHealth) {
  RunBuilder here = run_of(kNotANumber);
  RunBuilder there = run_of(kNotANumber);
  EXPECT_THAT(difference(here, there).cells, Each(kCellEqual));
}

TEST(RunDifference, AnotherFormatIsOtherBits) {
  RunBuilder here = run_of();
  RunBuilder there = run_of();
  there.run.tensor_rows[3].format = Format::bf16;
  EXPECT_EQ(difference(here, there).cell(2, 1), kCellOtherBits);
}

TEST(RunDifference, MeetsTokensByPositionAndSaysWhatOneRunLacks) {
  RunBuilder here = run_of();
  RunBuilder there = run_of(1, false);
  // The other run begins one token later, as with a prefix from the cache.
  there.run.step_rows[0].first_token = 1;
  there.run.step_rows[0].tokens = 1;
  for (TensorRow& tensor : there.run.tensor_rows) tensor.first_token = tensor.tokens = 1;
  const RunDifference found = difference(here, there);
  EXPECT_THAT(found.cells,
              ElementsAre(kCellOnlyHere, kCellOtherBits, kCellOnlyHere, kCellOnlyHere, kCellOtherBits, kCellOnlyHere));
  EXPECT_EQ(found.words(), "of 6 cells: 2 with other bits, 4 here only");
  const RunDifference reversed = difference(there, here);
  EXPECT_THAT(reversed.cells, Each(kCellOtherBits)) << "what only the other run has is in no column";
}

TEST(RunDifference, OpsOfOtherNamesDoNotMeet) {
  RunBuilder here = run_of();
  RunBuilder there = run_of();
  for (OpRow& op : there.run.op_rows) op.name += "_fused";
  const RunDifference found = difference(here, there);
  EXPECT_THAT(found.cells, Each(kCellOnlyHere));
  EXPECT_EQ(found.words(), "the other run has none of these cells");
}

TEST(RunDifference, PositionsThatNoRunHasMeetNothing) {
  RunBuilder here = run_of();
  RunBuilder there = run_of();
  const auto move = [](RunBuilder& builder, std::int64_t first) {
    builder.run.step_rows[0].first_token = first;
    for (const std::size_t tensor : {0U, 1U}) builder.run.tensor_rows[tensor].first_token = first;
  };
  move(here, std::numeric_limits<std::int64_t>::max());
  move(there, std::numeric_limits<std::int64_t>::min());
  const RunDifference found = difference(here, there);
  EXPECT_EQ(found.cell(0, 0), kCellOnlyHere);
  EXPECT_EQ(found.cell_there(1, 0), kAbsent) << "their distance does not wrap around";
}

TEST(FrontTable, HasTheCellsThatAreNotHealthy) {
  RunBuilder builder = run_of(kNotANumber);
  for (TokenRow& token : builder.run.token_rows) token.text = "=lamp\xff";
  const Table table = table_of(*make_run_map(BuiltView(builder), builder.run), nullptr, false);
  EXPECT_THAT(table.header, ElementsAre("request", "step", "layer", "op", "token", "text", "health"));
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_THAT(table.rows[0], ElementsAre("0", "0", "0", "q_proj", "1", "=lamp\\xff", "NaN"));
  RunBuilder healthy = run_of();
  EXPECT_TRUE(table_of(*make_run_map(BuiltView(healthy), healthy.run), nullptr, false).rows.empty());
}

TEST(FrontTable, OfTheDifferenceHasTheCellsThatDiffer) {
  RunBuilder here = run_of();
  RunBuilder there = run_of(kNotANumber);
  const RunMap map = *make_run_map(BuiltView(here), here.run);
  const RunDifference found = difference(here, there);
  EXPECT_TRUE(table_of(map, &found, false).rows.empty()) << "all is healthy here";
  const Table table = table_of(map, &found, true);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.header.size(), table.rows[1].size());
  EXPECT_THAT(table.rows[1], ElementsAre("0", "0", "0", "q_proj", "1", "t", "healthy", "NaN", "worse there"));
}

TEST(RunDifference, StopsWhenAsked) {
  RunBuilder builder = run_of();
  const auto map = std::make_shared<const RunMap>(*make_run_map(BuiltView(builder), builder.run));
  std::stop_source stop;
  BuiltView run(builder);
  RunDifferenceMaker maker(map, run, map, run, stop.get_token());
  stop.request_stop();
  EXPECT_FALSE(maker.refine(RunDifferenceMaker::Clock::time_point::max()));
}

}  // namespace
}  // namespace nanscope::gui::run_difference_test
