/// A recording that nanscope 0.1 wrote, of schema 3, its pages made smaller. What is expected of it was read out of its
/// blobs by another program (Python's struct).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

void expect_numbers(const Health& found, std::uint64_t count, double sum, double sum_sq, float min, float max) {
  Health expected;
  expected.count = count;
  expected.sum = sum;
  expected.sum_sq = sum_sq;
  expected.min = min;
  expected.max = max;
  expected.absmax = std::max(-min, max);
  EXPECT_TRUE(sample::same(found, expected)) << found.sum << " " << found.min;
}

TEST(Schema3, ItsFinerHealthIsWhatItWas) {
  TemporaryFolder folder;
  const std::filesystem::path path = folder / "old.nanscope";
  std::filesystem::copy_file(std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/recordings/schema3.nanscope",
                             path);
  const Result<Recording> opened = Recording::open_checked(path);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->schema(), 3U);
  EXPECT_EQ(opened->counts().value().tensors, 56);
  EXPECT_EQ(opened->counts().value().ops, 46);
  const std::vector<Health> rows = opened->token_health(20).value();
  ASSERT_EQ(rows.size(), 4U);
  expect_numbers(rows[0], 600, -8.74836181756109, 602.3866181319763, -3.5768918991088867F, 2.870368003845215F);
  expect_numbers(rows[3], 600, 15.756899447471369, 612.2072261480685, -2.791031837463379F, 2.7211294174194336F);
  const std::vector<Health> tiles = opened->tiles(20, 0).value().tiles;
  ASSERT_EQ(tiles.size(), 8U);
  expect_numbers(tiles[0], 512, -1.4587085312232375, 513.4969036341207, -3.5768918991088867F, 2.870368003845215F);
  expect_numbers(tiles[7], 88, 4.871193321421742, 95.5150488445559, -2.3636176586151123F, 2.604196071624756F);
}

}  // namespace
}  // namespace nanscope
