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
  std::vector<Health> merged(
      static_cast<std::size_t>(divide_up(shape.rows, kPyramidFan) * divide_up(shape.columns, kPyramidFan)));
  merge_level(tiles, shape, merged);
  return merged;
}

void merge_level(std::span<const Health> tiles, const LevelShape& shape, std::span<Health> merged) {
  assert(static_cast<std::int64_t>(tiles.size()) == shape.tiles());
  const auto columns = static_cast<std::size_t>(shape.columns);
  const auto fan = static_cast<std::size_t>(kPyramidFan);
  const auto merged_columns = static_cast<std::size_t>(divide_up(shape.columns, kPyramidFan));
  std::fill(merged.begin(), merged.end(), empty_health());
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    const std::span parts = tiles.subspan(row * columns, columns);
    const std::span into = merged.subspan(row / fan * merged_columns, merged_columns);
    for (std::size_t first = 0; first < columns; first += fan) {
      merge(into[first / fan], parts.subspan(first, std::min(fan, columns - first)));
    }
  }
}

std::vector<Health> merge_rows(std::span<const Health> tiles, const LevelShape& shape) {
  std::vector<Health> rows(static_cast<std::size_t>(shape.rows));
  merge_rows(tiles, shape, rows);
  return rows;
}

void merge_rows(std::span<const Health> tiles, const LevelShape& shape, std::span<Health> rows) {
  assert(static_cast<std::int64_t>(tiles.size()) == shape.tiles());
  const auto columns = static_cast<std::size_t>(shape.columns);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    rows[row] = empty_health();
    merge(rows[row], tiles.subspan(row * columns, columns));
  }
}

Health merge_all(std::span<const Health> parts) {
  Health all = empty_health();
  merge(all, parts);
  return all;
}

}  // namespace nanscope
