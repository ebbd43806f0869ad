#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

/// The health of a rectangle of a matrix, element by element: what every tile must equal.
Health by_elements(const std::vector<float>& data, std::int64_t channels, std::int64_t row_begin, std::int64_t row_end,
                   std::int64_t column_begin, std::int64_t column_end) {
  Health h = empty_health();
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    for (std::int64_t c = column_begin; c < column_end; ++c) {
      const float x = data[static_cast<std::size_t>(r * channels + c)];
      ++h.count;
      if (std::isnan(x) || std::isinf(x)) {
        h.nan += std::isnan(x) ? 1 : 0;
        h.pos_inf += std::isinf(x) && x > 0 ? 1 : 0;
        h.neg_inf += std::isinf(x) && x < 0 ? 1 : 0;
        if (h.first_bad < 0) h.first_bad = r * channels + c;
        continue;
      }
      h.zero += x == 0 ? 1 : 0;
      h.sum += x;
      h.sum_sq += double{x} * x;
      h.min = std::min(h.min, x);
      h.max = std::max(h.max, x);
      h.absmax = std::max(h.absmax, std::fabs(x));
    }
  }
  return h;
}

void expect_exact(const Health& got, const Health& want) {
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.nan, want.nan);
  EXPECT_EQ(got.pos_inf, want.pos_inf);
  EXPECT_EQ(got.neg_inf, want.neg_inf);
  EXPECT_EQ(got.zero, want.zero);
  EXPECT_EQ(got.first_bad, want.first_bad);
  EXPECT_EQ(got.min, want.min);
  EXPECT_EQ(got.max, want.max);
  EXPECT_EQ(got.absmax, want.absmax);
  EXPECT_NEAR(got.sum, want.sum, 1e-9);
}

std::vector<Health> level_zero(const std::vector<float>& data, std::int64_t tokens, std::int64_t channels) {
  std::vector<Health> tiles;
  for (std::int64_t r = 0; r < tokens; ++r) {
    for (std::int64_t c = 0; c < channels; c += kTileChannels) {
      tiles.push_back(by_elements(data, channels, r, r + 1, c, std::min(c + kTileChannels, channels)));
    }
  }
  return tiles;
}

TEST(Pyramid, EveryTileOfEveryLevelIsItsElements) {
  for (const auto& [tokens, channels] : {std::pair{1, 1}, {1, 5000}, {37, 100}, {17, 1100}, {64, 256}}) {
    std::mt19937 random(static_cast<unsigned>(tokens));
    std::vector<float> data(static_cast<std::size_t>(tokens * channels));
    for (float& x : data) x = static_cast<float>(random() % 100) - 50;
    data[data.size() / 2] = NAN;
    data[data.size() / 3] = -INFINITY;
    auto level = level_zero(data, tokens, channels);
    const int levels = pyramid_levels(tokens, channels);
    for (int i = 0; i < levels; ++i) {
      const LevelShape shape = level_shape(tokens, channels, i);
      ASSERT_EQ(level.size(), static_cast<std::size_t>(shape.tiles()));
      for (std::int64_t r = 0; r < shape.rows; ++r) {
        for (std::int64_t c = 0; c < shape.columns; ++c) {
          const auto row = r * shape.tokens_per_tile;
          const auto column = c * shape.channels_per_tile;
          const auto want =
              by_elements(data, channels, row, std::min<std::int64_t>(row + shape.tokens_per_tile, tokens), column,
                          std::min<std::int64_t>(column + shape.channels_per_tile, channels));
          expect_exact(level[static_cast<std::size_t>(r * shape.columns + c)], want);
        }
      }
      if (i + 1 < levels) level = merge_level(level, shape);
    }
    EXPECT_EQ(level.size(), 1U);
  }
}

TEST(Pyramid, OneNanShowsInOneTileOfEveryLevel) {
  const std::int64_t tokens = 300;
  const std::int64_t channels = 9000;
  std::vector<Health> level(static_cast<std::size_t>(level_shape(tokens, channels, 0).tiles()), empty_health());
  level[4321].nan = 1;
  for (int i = 0; i < pyramid_levels(tokens, channels); ++i) {
    std::uint64_t lit = 0;
    for (const Health& tile : level) lit += tile.bad();
    EXPECT_EQ(lit, 1U) << i;
    level = merge_level(level, level_shape(tokens, channels, i));
  }
}

TEST(Pyramid, RowsAndWholeAreMergedFromTiles) {
  std::vector<float> data(3 * 600, 1.0F);
  data[700] = NAN;
  const auto tiles = level_zero(data, 3, 600);
  const auto rows = merge_rows(tiles, level_shape(3, 600, 0));
  ASSERT_EQ(rows.size(), 3U);
  for (std::int64_t r = 0; r < 3; ++r) {
    expect_exact(rows[static_cast<std::size_t>(r)], by_elements(data, 600, r, r + 1, 0, 600));
  }
  expect_exact(merge_all(rows), by_elements(data, 600, 0, 3, 0, 600));
}

TEST(Pyramid, EmptyTensorsHaveNoTiles) {
  EXPECT_EQ(pyramid_levels(0, 5), 0);
  EXPECT_EQ(pyramid_levels(5, 0), 0);
  EXPECT_EQ(level_shape(0, 5, 0).tiles(), 0);
}

}  // namespace
}  // namespace nanscope
