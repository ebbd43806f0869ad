#include "core/run/key_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// Which positions the columns of scores stand for.
namespace nanscope {
namespace {

using ::testing::ElementsAre;

TEST(KeyColumns, PaddingBeforeTheOnlySequenceHasColumns) {
  Step step;
  step.rows = 5;
  step.spans = {Span{0, 0, 2, 3, 0, 3}};
  EXPECT_THAT(column_positions(step, step.spans.front(), 5), ElementsAre(-1, -1, 0, 1, 2));
}

TEST(KeyColumns, SlotsBehindTheFrameOfAPaddedBatchAreNobodys) {
  Step step;
  step.rows = 8;
  step.batch = 2;
  step.spans = {Span{0, 0, 0, 4, 0, 4}, Span{1, 0, 6, 2, 0, 2}};
  EXPECT_THAT(column_positions(step, step.spans.back(), 6), ElementsAre(-1, -1, 0, 1, 2, 3));
  step.spans.back().first_token = 3;  // a part of a prompt: the keys before it come first
  step.spans.back().context = 5;
  EXPECT_THAT(column_positions(step, step.spans.back(), 7), ElementsAre(-1, -1, 0, 1, 2, 3, 4));
}

TEST(KeyColumns, KeysBehindTheLastTokenAreTheTailOfABlock) {
  Step step;
  step.rows = 3;
  step.spans = {Span{0, 0, 0, 3, 0, 3}};
  EXPECT_THAT(column_positions(step, step.spans.front(), 5), ElementsAre(0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace nanscope
