#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/health.h"

/// The health pyramid of a tensor. Level 0 has one tile a token row and kTileChannels channels;
/// each next level merges kPyramidFan x kPyramidFan tiles of the one below, until one tile is left.
/// Nothing is sampled: one NaN in any element is counted in exactly one tile of every level.
namespace nanscope {

inline constexpr std::int64_t kPyramidFan = 4;

/// Shape of one level: a row-major grid of tiles.
struct LevelShape {
  int level = 0;
  std::int64_t rows = 0;                           ///< tiles along the tokens
  std::int64_t columns = 0;                        ///< tiles along the channels
  std::int64_t tokens_per_tile = 1;                ///< the last row of tiles may cover fewer
  std::int64_t channels_per_tile = kTileChannels;  ///< the last column of tiles may cover fewer

  std::int64_t tiles() const { return rows * columns; }
  bool operator==(const LevelShape&) const = default;
};

/// Number of levels of a tensor of `tokens` x `channels`, 0 when it is empty.
int pyramid_levels(std::int64_t tokens, std::int64_t channels);

/// Shape of `level`, which must be below pyramid_levels(); level 0 of an empty tensor has no tiles.
LevelShape level_shape(std::int64_t tokens, std::int64_t channels, int level);

/// Merges the tiles of one level (`shape.tiles()` of them) into those of the next. Within a tile
/// the parts are merged in row-major order, so the sums are a function of the data and the shape.
std::vector<Health> merge_level(std::span<const Health> tiles, const LevelShape& shape);
/// The same into `merged`, which has as many as the next level.
void merge_level(std::span<const Health> tiles, const LevelShape& shape, std::span<Health> merged);

/// Merges each row of level-0 tiles into the health of its token row, in ascending channel order.
std::vector<Health> merge_rows(std::span<const Health> tiles, const LevelShape& shape);
/// The same into `rows`, which has `shape.rows`.
void merge_rows(std::span<const Health> tiles, const LevelShape& shape, std::span<Health> rows);

/// Merges all of them in order: the health of the tensor from that of its token rows.
Health merge_all(std::span<const Health> parts);

}  // namespace nanscope
