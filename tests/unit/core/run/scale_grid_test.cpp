#include "core/run/scale_grid.h"

#include <gtest/gtest.h>

#include "tests/unit/core/run/graph.h"

/// Which scale is an element's.
namespace nanscope {
namespace {

using testing::DumpGraph;

/// The grid of scales 0, 1, 2 ... of `rows` x `columns` over codes of `tokens` x `channels` in `heads` heads.
std::optional<ScaleGrid> grid(std::int64_t rows, std::int64_t columns, std::int64_t tokens, std::int64_t channels,
                              std::int64_t heads = 1) {
  DumpGraph g;
  g.pass();
  const TensorId scale =
      g.parameter("scale", rows, columns, [=](auto r, auto c) { return static_cast<float>(r * columns + c); });
  const TensorId codes = g.source({.tokens = tokens, .channels = channels, .heads = heads});
  return ScaleGrid::of(g, *g.tensor(scale), *g.tensor(codes));
}

TEST(ScaleGrid, OneForAll) {
  const auto found = grid(1, 1, 4, 16);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->single());
  EXPECT_EQ(found->at(3, 15), 0);
  EXPECT_EQ(ScaleGrid::uniform(0.5).at(7, 7), 0.5);
}

TEST(ScaleGrid, OneARowOrAChannel) {
  const auto rows = grid(4, 1, 4, 16);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at(2, 11), 2);
  const auto channels = grid(1, 16, 4, 16);
  ASSERT_TRUE(channels);
  EXPECT_EQ(channels->at(2, 11), 11);
}

TEST(ScaleGrid, OfASquareTheShapeTells) {
  const auto rows = grid(16, 1, 16, 16);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at(3, 11), 3);
  const auto channels = grid(1, 16, 16, 16);
  ASSERT_TRUE(channels);
  EXPECT_EQ(channels->at(3, 11), 11);
}

TEST(ScaleGrid, OneAHead) {
  const auto found = grid(1, 4, 6, 32, 4);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->by_head());
  EXPECT_EQ(found->at(5, 17), 2);
}

/// A prompt of four tokens, and four heads: scores by head look like scores by row.
TEST(ScaleGrid, OfAsManyRowsAsHeadsTheScaleSaysWhichItIsOf) {
  DumpGraph g;
  g.pass();
  const TensorId made = g.parameter("scale", 1, 4, [](auto, auto c) { return static_cast<float>(c); });
  const TensorId codes = g.source({.tokens = 4, .channels = 32, .heads = 4});
  Tensor scale = *g.tensor(made);
  EXPECT_EQ(ScaleGrid::of(g, scale, *g.tensor(codes))->at(3, 17), 3);
  scale.heads = 4;
  const auto found = ScaleGrid::of(g, scale, *g.tensor(codes));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->by_head());
  EXPECT_EQ(found->at(3, 17), 2);
}

TEST(ScaleGrid, OneARowAndHead) {
  const auto found = grid(6, 4, 6, 32, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at(5, 17), 5 * 4 + 2);
}

TEST(ScaleGrid, BlocksOf128WithALastOneThatIsNotFull) {
  const auto found = grid(5, 3, 576, 384);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at(0, 0), 0);
  EXPECT_EQ(found->at(127, 128), 1);
  EXPECT_EQ(found->at(575, 383), 4 * 3 + 2);
  EXPECT_EQ(found->at(512, 256), 4 * 3 + 2);
}

TEST(ScaleGrid, RowsOfBlocksOf32) {
  const auto found = grid(6, 4, 6, 128);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at(5, 97), 5 * 4 + 3);
}

TEST(ScaleGrid, AShapeThatFitsNothingIsNone) {
  EXPECT_FALSE(grid(1, 7, 4, 16));
  EXPECT_FALSE(grid(9, 5, 4, 16));
}

TEST(BlockExtent, TheUsualSizesFirst) {
  EXPECT_EQ(block_extent(576, 5), 128);
  EXPECT_EQ(block_extent(64, 2), 32);
  EXPECT_EQ(block_extent(48, 2), 32) << "a whole one and a half";
  EXPECT_EQ(block_extent(40, 5), 8);
  EXPECT_EQ(block_extent(16, 16), 1);
  EXPECT_EQ(block_extent(16, 1), 16);
  EXPECT_EQ(block_extent(16, 17), 0);
  EXPECT_EQ(block_extent(16, 0), 0);
  EXPECT_EQ(block_extent(30, 6), 5);
}

TEST(ScaleGrid, RowsThatAreNoneTakeTheNearest) {
  const auto rows = grid(4, 1, 4, 16);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at(-1, 0), 0);
  EXPECT_EQ(rows->at(9, 0), 3);
}

}  // namespace
}  // namespace nanscope
