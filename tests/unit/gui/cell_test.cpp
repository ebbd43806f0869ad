#include "gui/cell.h"

#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

Health healthy(float absmax) {
  Health health = empty_health();
  health.count = 10;
  health.absmax = absmax;
  return health;
}

TEST(Cell, TakesTheWorstThatIsThere) {
  Health health = healthy(1);
  EXPECT_EQ(cell_of(health, 1.1), kLowHeadroom);
  health.clipped = 1;
  EXPECT_EQ(cell_of(health, 1.1), kClipped);
  health.neg_inf = 1;
  EXPECT_EQ(cell_of(health, 1.1), kInf);
  health.nan = 1;
  EXPECT_EQ(cell_of(health, 1.1), kNan);
}

TEST(Cell, KnowsNothingFromZero) {
  EXPECT_EQ(cell_of(empty_health(), 0), kAbsent);
  EXPECT_EQ(cell_of(healthy(0), 0), kZero);
}

TEST(Cell, RampAscendsAndStopsAtItsEnds) {
  Cell last = kHealthyFirst;
  for (float absmax = 1e-6F; absmax < 1e8F; absmax *= 1.3F) {
    const Cell cell = cell_of(healthy(absmax), 0);
    EXPECT_GE(cell, last);
    last = cell;
  }
  EXPECT_EQ(cell_of(healthy(1e-30F), 0), kHealthyFirst);
  EXPECT_EQ(last, kHealthyLast);
}

TEST(Cell, StepHoldsItsMagnitudes) {
  const Cell cell = cell_of(healthy(3), 0);
  EXPECT_LE(magnitude_of(cell), 3);
  EXPECT_GT(magnitude_of(static_cast<Cell>(cell + 1)), 3);
}

}  // namespace
}  // namespace nanscope::gui
