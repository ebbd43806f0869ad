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

/// Whether it is from_numbers() of its own numbers, by bits. Without branches: it is asked of every tile of a run.
bool is_of_numbers(const Health& health, std::int64_t elements) {
  const float absmax = -health.min > health.max ? -health.min : health.max;
  const std::uint64_t others = health.nan | health.pos_inf | health.neg_inf | health.saturated | health.subnormal |
                               health.zero | health.flushed | health.clipped | health.reserved;
  const std::uint64_t differ = (health.count ^ static_cast<std::uint64_t>(elements)) |
                               (static_cast<std::uint64_t>(health.first_bad) + 1) |
                               (std::bit_cast<std::uint32_t>(health.absmax) ^ std::bit_cast<std::uint32_t>(absmax));
  return (others | differ) == 0;
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
  const std::size_t begin = numbers_.size();
  numbers_.resize(begin + records.size());
  return each_record(shape, row, [&](std::size_t at, std::int64_t elements) {
    const Health& health = records[at];
    numbers_[begin + at] = {health.sum, health.sum_sq, health.min, health.max};
    return is_of_numbers(health, elements);
  });
}

bool Encoder::to_numbers(const TensorRow& row, const HealthView& detail) {
  numbers_.clear();
  if (!to_numbers(detail.tokens, token_rows_shape(row), row)) return false;
  if (!detail.tiles.empty() && !to_numbers(detail.tiles, level_shape(row.tokens, row.channels, 0), row)) return false;
  std::span<const Health> left = levels_;
  for (int level = 1; !left.empty(); ++level) {
    const LevelShape shape = level_shape(row.tokens, row.channels, level);
    const auto tiles = static_cast<std::size_t>(shape.tiles());
    if (!to_numbers(left.first(tiles), shape, row)) return false;
    left = left.subspan(tiles);
  }
  return true;
}

void Encoder::merge_levels(const TensorRow& row, std::span<const Health> finest) {
  std::size_t tiles = 0;
  for (int level = 1; level < pyramid_levels(row.tokens, row.channels); ++level) {
    tiles += static_cast<std::size_t>(level_shape(row.tokens, row.channels, level).tiles());
  }
  levels_.resize(tiles);
  std::span<const Health> below = finest;
  std::span<Health> left = levels_;
  for (int level = 1; !left.empty(); ++level) {
    const auto count = static_cast<std::size_t>(level_shape(row.tokens, row.channels, level).tiles());
    merge_level(below, level_shape(row.tokens, row.channels, level - 1), left.first(count));
    below = left.first(count);
    left = left.subspan(count);
  }
}

Encoded Encoder::encode(const TensorRow& row, const HealthView& detail) {
  const LevelShape base = level_shape(row.tokens, row.channels, 0);
  Encoded encoded;
  levels_.clear();
  if (base.tiles() > schema::kStoredPyramidTiles) {
    merge_levels(row, detail.tiles.empty() ? detail.tokens : detail.tiles);
    encoded.levels = pyramid_levels(row.tokens, row.channels) - 1;
  }
  // Level 0 is the token rows where it has one column.
  const std::span<const Health> tiles = base.columns > 1 ? detail.tiles : std::span<const Health>();
  if (!tiles.empty()) ++encoded.levels;
  if (to_numbers(row, {detail.tokens, tiles})) {
    const std::span<const Numbers> all = numbers_;
    encoded.kind = schema::kDetailNumbers;
    encoded.token_rows = std::as_bytes(all.first(detail.tokens.size()));
    encoded.tiles = std::as_bytes(all.subspan(detail.tokens.size()));
    return encoded;
  }
  encoded.kind = schema::kDetailStored;
  encoded.token_rows = std::as_bytes(detail.tokens);
  encoded.tiles = std::as_bytes(tiles);
  encoded.upper = std::as_bytes(std::span<const Health>(levels_));
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
