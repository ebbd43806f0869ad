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

TEST(FrontImage, RangeOutsideTheMapIsCut) {
  const RunMap map = grid(4, 4, kZero);
  const FrontImage image = make_front_image(map, {-5, 9, 2, 90}, 100, 100);
  EXPECT_EQ(image.range, (FrontRange{0, 4, 2, 4}));
  EXPECT_TRUE(make_front_image(map, {9, 12, 0, 4}, 100, 100).texels.empty());
  EXPECT_TRUE(make_front_image(RunMap{}, {0, 1, 0, 1}, 100, 100).texels.empty());
}

}  // namespace
}  // namespace nanscope::gui
