#include "gui/prepare/row_labels.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nanscope::gui {
namespace {

std::vector<std::size_t> first_rows(std::size_t count) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < count; ++i) rows.push_back(i);
  return rows;
}

TEST(RowLabels, NoneIsWrittenOverAnotherAtWhateverZoom) {
  const std::vector<std::size_t> wanted = first_rows(200);
  for (float height = 0.5F; height < 80; height *= 1.1F) {
    for (float top = -1500; top <= 40; top += 7.3F) {
      const RowsOnScreen rows{top, height, 40, 260};
      const auto placed = place_row_labels(wanted, rows, 12);
      for (std::size_t i = 0; i < placed.size(); ++i) {
        EXPECT_GE(placed[i].centre, 46);
        EXPECT_LE(placed[i].centre, 254);
        for (std::size_t j = 0; j < i; ++j) ASSERT_GE(std::abs(placed[i].centre - placed[j].centre), 11.5F);
      }
    }
  }
}

TEST(RowLabels, RowsThatAreNotSeenHaveNone) {
  const std::vector<std::size_t> wanted = {0, 5, 90};
  const auto placed = place_row_labels(wanted, {-100, 30, 0, 200}, 12);
  ASSERT_EQ(placed.size(), 1U);
  EXPECT_EQ(placed[0].wanted, 1U);
  EXPECT_EQ(placed[0].centre, 65);
}

TEST(RowLabels, TheMostWantedComesFirst) {
  const std::vector<std::size_t> wanted = {3, 2, 4, 30};
  const auto placed = place_row_labels(wanted, {0, 5, 0, 200}, 12);
  ASSERT_EQ(placed.size(), 2U);
  EXPECT_EQ(placed[0].wanted, 0U);
  EXPECT_EQ(placed[1].wanted, 3U);
}

TEST(RowLabels, AThinRowAtTheEdgeKeepsItsWholeName) {
  const std::vector<std::size_t> wanted = {39};
  const auto placed = place_row_labels(wanted, {0, 5, 0, 200}, 12);
  ASSERT_EQ(placed.size(), 1U);
  EXPECT_EQ(placed[0].centre, 194);
}

TEST(RowLabels, AreNowhereWhereThereIsNoRoom) {
  EXPECT_TRUE(place_row_labels(first_rows(3), {0, 5, 0, 10}, 12).empty());
  EXPECT_TRUE(place_row_labels({}, {0, 5, 0, 100}, 12).empty());
}

}  // namespace
}  // namespace nanscope::gui
