#include "core/tensor/pyramid.h"

#include <algorithm>
#include <cassert>

namespace nanscope {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

}  // namespace

int pyramid_levels(std::int64_t tokens, std::int64_t channels) {
  if (tokens <= 0 || channels <= 0) return 0;
  std::int64_t rows = tokens;
  std::int64_t columns = divide_up(channels, kTileChannels);
  int levels = 1;
  for (; rows > 1 || columns > 1; ++levels) {
    rows = divide_up(rows, kPyramidFan);
    columns = divide_up(columns, kPyramidFan);
  }
  return levels;
}

LevelShape level_shape(std::int64_t tokens, std::int64_t channels, int level) {
  LevelShape shape;
  shape.level = level;
  if (tokens <= 0 || channels <= 0) return shape;
  shape.rows = tokens;
  shape.columns = divide_up(channels, kTileChannels);
  for (int i = 0; i < level; ++i) {
    shape.rows = divide_up(shape.rows, kPyramidFan);
    shape.columns = divide_up(shape.columns, kPyramidFan);
    shape.tokens_per_tile *= kPyramidFan;
    shape.channels_per_tile *= kPyramidFan;
  }
  return shape;
}

std::vector<Health> merge_level(std::span<const Health> tiles, const LevelShape& shape) {
  assert(static_cast<std::int64_t>(tiles.size()) == shape.tiles());
  const std::int64_t rows = divide_up(shape.rows, kPyramidFan);
  const std::int64_t columns = divide_up(shape.columns, kPyramidFan);
  std::vector<Health> merged(static_cast<std::size_t>(rows * columns), empty_health());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      Health& into = merged[static_cast<std::size_t>(row / kPyramidFan * columns + column / kPyramidFan)];
      merge(into, tiles[static_cast<std::size_t>(row * shape.columns + column)]);
    }
  }
  return merged;
}

std::vector<Health> merge_rows(std::span<const Health> tiles, const LevelShape& shape) {
  assert(static_cast<std::int64_t>(tiles.size()) == shape.tiles());
  std::vector<Health> rows(static_cast<std::size_t>(shape.rows), empty_health());
  const auto columns = static_cast<std::size_t>(shape.columns);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    merge(rows[static_cast<std::size_t>(row)], tiles.subspan(static_cast<std::size_t>(row) * columns, columns));
  }
  return rows;
}

Health merge_all(std::span<const Health> parts) {
  Health all = empty_health();
  for (const Health& part : parts) merge(all, part);
  return all;
}

}  // namespace nanscope
