#include "core/recording/detail_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/recording/schema.h"

namespace nanscope::detail_codec {
namespace {

Health from_numbers(const Numbers& numbers, std::int64_t elements) {
  Health health;
  health.count = static_cast<std::uint64_t>(elements);
  health.sum = numbers.sum;
  health.sum_sq = numbers.sum_sq;
  health.min = numbers.min;
  health.max = numbers.max;
  health.absmax = -numbers.min > numbers.max ? -numbers.min : numbers.max;
  return health;
}

/// Calls visit(record, elements) for each record of a level in its order, until it is false.
template <class Visit>
bool each_record(const LevelShape& shape, const TensorRow& row, const Visit& visit) {
  std::size_t record = 0;
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    const std::int64_t tokens = std::min(shape.tokens_per_tile, row.tokens - i * shape.tokens_per_tile);
    for (std::int64_t j = 0; j < shape.columns; ++j, ++record) {
      if (!visit(record, tokens * std::min(shape.channels_per_tile, row.channels - j * shape.channels_per_tile))) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool same_bits(const Health& a, const Health& b) {
  using Words = std::array<std::uint64_t, sizeof(Health) / sizeof(std::uint64_t)>;
  return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
}

std::int64_t record_bytes(std::int64_t kind) {
  return static_cast<std::int64_t>(kind == schema::kDetailNumbers ? sizeof(Numbers) : sizeof(Health));
}

LevelShape token_rows_shape(const TensorRow& row) {
  return {.rows = row.tokens, .columns = 1, .channels_per_tile = row.channels};
}

bool Encoder::to_numbers(std::span<const Health> records, const LevelShape& shape, const TensorRow& row) {
  return each_record(shape, row, [&](std::size_t at, std::int64_t elements) {
    const Health& health = records[at];
    const Numbers numbers{health.sum, health.sum_sq, health.min, health.max};
    if (!same_bits(from_numbers(numbers, elements), health)) return false;
    numbers_.push_back(numbers);
    return true;
  });
}

Encoded Encoder::encode(const TensorRow& row, const TensorDetail& detail) {
  const LevelShape base = level_shape(row.tokens, row.channels, 0);
  const std::vector<Health>& finest = detail.tiles.empty() ? detail.tokens : detail.tiles;
  // Level 0 is the token rows where it has one column.
  const bool whole_rows = base.columns == 1;
  Encoded encoded;
  levels_.clear();
  if (!whole_rows) {
    levels_ = finest;
    encoded.levels = 1;
  }
  if (base.tiles() > schema::kStoredPyramidTiles) {
    std::vector<Health> level = finest;
    for (int i = 1; i < pyramid_levels(row.tokens, row.channels); ++i, ++encoded.levels) {
      level = merge_level(level, level_shape(row.tokens, row.channels, i - 1));
      levels_.insert(levels_.end(), level.begin(), level.end());
    }
  }

  numbers_.clear();
  bool numbers = to_numbers(detail.tokens, token_rows_shape(row), row);
  const std::size_t rows = numbers_.size();
  std::span<const Health> left = levels_;
  for (int i = whole_rows ? 1 : 0; numbers && !left.empty(); ++i) {
    const LevelShape shape = level_shape(row.tokens, row.channels, i);
    numbers = to_numbers(left, shape, row);
    left = left.subspan(static_cast<std::size_t>(shape.tiles()));
  }
  encoded.kind = numbers ? schema::kDetailNumbers : schema::kDetailStored;
  const std::span<const Numbers> all = numbers_;
  encoded.token_rows = numbers ? std::as_bytes(all.first(rows)) : std::as_bytes(std::span(detail.tokens));
  encoded.tiles = numbers ? std::as_bytes(all.subspan(rows)) : std::as_bytes(std::span(levels_));
  return encoded;
}

std::vector<Health> decode(std::span<const std::byte> blob, std::int64_t kind, const LevelShape& shape,
                           const TensorRow& row) {
  std::vector<Health> records(static_cast<std::size_t>(shape.tiles()));
  if (records.empty()) return records;
  if (kind != schema::kDetailNumbers) {
    std::memcpy(records.data(), blob.data(), records.size() * sizeof(Health));
    return records;
  }
  each_record(shape, row, [&](std::size_t at, std::int64_t elements) {
    Numbers numbers;
    std::memcpy(&numbers, blob.data() + at * sizeof numbers, sizeof numbers);
    records[at] = from_numbers(numbers, elements);
    return true;
  });
  return records;
}

}  // namespace nanscope::detail_codec
