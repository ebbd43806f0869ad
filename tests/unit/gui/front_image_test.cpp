#include "gui/prepare/front_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nanscope::gui {
namespace {

RunMap grid(std::int64_t columns, std::size_t rows, Cell cell) {
  RunMap map;
  map.columns = columns;
  map.rows.resize(rows);
  map.cells.assign(static_cast<std::size_t>(columns) * rows, cell);
  return map;
}

Cell worst(const FrontImage& image) { return *std::max_element(image.texels.begin(), image.texels.end()); }

TEST(FrontImage, ShowsOneTexelACellWhereThereIsRoom) {
  RunMap map = grid(5, 3, kZero);
  map.cells[1 * 5 + 4] = kNan;
  const FrontImage image = make_front_image(map, {1, 5, 0, 3}, 100, 100);
  EXPECT_EQ(image.width, 4);
  EXPECT_EQ(image.height, 3);
  EXPECT_EQ(image.texels[1 * 4 + 3], kNan);
  EXPECT_EQ(std::count(image.texels.begin(), image.texels.end(), kNan), 1);
}

TEST(FrontImage, OneNanAmongTenMillionIsSeenAtEveryZoom) {
  constexpr std::int64_t kColumns = 40000;
  constexpr std::int64_t kRows = 250;
  RunMap map = grid(kColumns, kRows, kHealthyFirst);
  constexpr std::int64_t kColumn = 31337;
  constexpr std::int64_t kRow = 77;
  map.cells[kRow * kColumns + kColumn] = kNan;
  for (std::int64_t wide = kColumns; wide >= 4; wide = wide * 2 / 3) {
    const std::int64_t high = std::max<std::int64_t>(1, wide * kRows / kColumns);
    const std::int64_t left = std::min(kColumns - wide, kColumn - wide / 3);
    const std::int64_t top = std::min(kRows - high, kRow - high / 2);
    const FrontRange range{left, left + wide, top, top + high};
    const FrontImage image = make_front_image(map, range, 907, 613);
    EXPECT_EQ(worst(image), kNan) << wide;
    EXPECT_EQ(std::count(image.texels.begin(), image.texels.end(), kNan), 1) << wide;
  }
}

TEST(FrontImage, CoversEachCellOnce) {
  RunMap map = grid(101, 7, kZero);
  for (std::int64_t c = 0; c < 101; ++c) {
    map.cells[static_cast<std::size_t>(3 * 101 + c)] = kNan;
    const FrontImage image = make_front_image(map, {0, 101, 0, 7}, 13, 3);
    EXPECT_EQ(std::count(image.texels.begin(), image.texels.end(), kNan), 1) << c;
    map.cells[static_cast<std::size_t>(3 * 101 + c)] = kZero;
  }
}

TEST(FrontImage, MarksWhatALineCouldCover) {
  RunMap map = grid(4000, 300, kHealthyFirst);
  const auto set = [&](std::int64_t column, std::int64_t row, Cell cell) {
    map.cells[static_cast<std::size_t>(row * 4000 + column)] = cell;
  };
  const auto marks = [&](int width, int height) {
    return make_front_image(map, {0, 4000, 0, 300}, width, height).marks;
  };
  EXPECT_TRUE(marks(1000, 300).empty());
  set(2000, 7, kLowHeadroom);
  EXPECT_TRUE(marks(1000, 300).empty()) << "nothing is bad yet";
  set(100, 200, kClipped);
  ASSERT_EQ(marks(1000, 300).size(), 1U);
  EXPECT_EQ(marks(1000, 300)[0].worst, kClipped);
  set(100, 200, kHealthyFirst);
  set(2001, 8, kNan);
  ASSERT_EQ(marks(1000, 300).size(), 1U);
  EXPECT_EQ(marks(1000, 300)[0].x, 500);
  EXPECT_EQ(marks(1000, 300)[0].y, 8);
  EXPECT_EQ(marks(1000, 300)[0].width, 1);
  EXPECT_TRUE(marks(1000, 300)[0].lone);
  for (std::int64_t c = 0; c < 4000; ++c) set(c, 100, c == 5 ? kNan : kInf);
  ASSERT_EQ(marks(1000, 300).size(), 2U) << "a row";
  EXPECT_EQ(marks(1000, 300)[1].width, 1000);
  EXPECT_EQ(marks(1000, 300)[1].worst, kNan);
  EXPECT_FALSE(marks(1000, 300)[1].lone);
  EXPECT_EQ(marks(1000, 3000).size(), 1U) << "the row is higher than any line";
}

TEST(FrontImage, MarksNothingThatIsLarge) {
  RunMap map = grid(400, 300, kHealthyFirst);
  for (std::size_t r = 50; r < 90; ++r) {
    for (std::size_t c = 100; c < 180; ++c) map.cells[r * 400 + c] = kNan;
  }
  EXPECT_TRUE(make_front_image(map, {0, 400, 0, 300}, 400, 300).marks.empty());
  EXPECT_EQ(make_front_image(map, {0, 400, 0, 300}, 400, 20).marks.size(), 3U) << "three rows of pixels";
  map.cells[10] = kNan;
  EXPECT_EQ(make_front_image(map, {0, 400, 0, 300}, 400, 300).marks.size(), 1U);
}

TEST(FrontImage, MarksNoMoreThanAFrameCanDraw) {
  RunMap map = grid(1000, 300, kHealthyFirst);
  for (std::size_t i = 0; i < map.cells.size(); i += 2) map.cells[i] = i < 1000 ? kClipped : kNan;
  const std::vector<FrontMark> marks = make_front_image(map, {0, 1000, 0, 300}, 1000, 300).marks;
  EXPECT_EQ(marks.size(), 4096U);
  EXPECT_EQ(marks.front().worst, kNan) << "the worst come first";
}

TEST(FrontImage, RangeOutsideTheMapIsCut) {
  const RunMap map = grid(4, 4, kZero);
  const FrontImage image = make_front_image(map, {-5, 9, 2, 90}, 100, 100);
  EXPECT_EQ(image.range, (FrontRange{0, 4, 2, 4}));
  EXPECT_TRUE(make_front_image(map, {9, 12, 0, 4}, 100, 100).texels.empty());
  EXPECT_TRUE(make_front_image(RunMap{}, {0, 1, 0, 1}, 100, 100).texels.empty());
}

}  // namespace
}  // namespace nanscope::gui
