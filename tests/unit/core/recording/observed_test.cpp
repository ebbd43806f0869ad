#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/core/recording/sample.h"

/// Tensors whose health the writing thread merges: what is read is what the recorder would have merged itself, and
/// what it lent is let go of.
namespace nanscope {
namespace {

using testing::HasSubstr;

struct TokensByChannels {
  std::int64_t tokens;
  std::int64_t channels;
};

/// Narrow and wide, with levels above the stored one and without, and nothing at all.
constexpr TokensByChannels kShapes[] = {{5, 64}, {3, 1300}, {1, 513}, {1500, 600}, {2000, 16}, {0, 600}, {700, 1024}};

std::vector<std::byte> bytes_of(const TokensByChannels& shape) {
  return sample::noise(static_cast<std::size_t>(shape.tokens * shape.channels) * sizeof(float), 3);
}

std::vector<Health> tiles_of(const TokensByChannels& shape, bool finite) {
  const LevelShape base = level_shape(shape.tokens, shape.channels, 0);
  std::vector<Health> tiles;
  for (std::int64_t i = 0; i < base.tiles(); ++i) {
    const std::int64_t left = shape.channels - i % base.columns * kTileChannels;
    const auto count = static_cast<std::uint64_t>(std::min(left, kTileChannels));
    tiles.push_back(sample::health_of(count, static_cast<std::uint64_t>(i), i == 7 ? 2 : 0));
    if (!finite) continue;
    Health plain = empty_health();
    plain.count = count;
    plain.sum = 0.1 * static_cast<double>(i);
    plain.sum_sq = 1.0 / (1.0 + static_cast<double>(i));
    plain.min = -1.5F;
    plain.max = plain.absmax = 2.0F + static_cast<float>(i % 5);
    tiles.back() = plain;
  }
  return tiles;
}

/// A recording of one tensor, which `add` adds.
template <class Add>
Result<Recording> recorded_alone(const TokensByChannels& shape, const Add& add) {
  auto writer = RecordingWriter::create_in_memory({}).value();
  StepRow step;
  step.id = 1;
  step.tokens = shape.tokens;
  writer->add(step);
  writer->add(OpRow{1, 1, 0, "attn_norm", "layer_norm", "{}"}, {});
  TensorRow row;
  row.id = row.op = 1;
  row.role = "out";
  row.tokens = shape.tokens;
  row.channels = shape.channels;
  row.hash = sample::hash_of(bytes_of(shape));
  add(*writer, row);
  EXPECT_TRUE(writer->commit_step());
  return writer->finish_in_memory(1);
}

void expect_same_tensor(const Recording& found, const Recording& expected, const TokensByChannels& shape) {
  EXPECT_TRUE(sample::same(found.tensor(1)->health, expected.tensor(1)->health));
  EXPECT_TRUE(sample::same(*found.token_health(1), *expected.token_health(1)));
  for (int level = 0; level < pyramid_levels(shape.tokens, shape.channels); ++level) {
    EXPECT_TRUE(sample::same(found.tiles(1, level)->tiles, expected.tiles(1, level)->tiles)) << "level " << level;
  }
  const auto elements = found.tensor_bytes(1);
  ASSERT_TRUE(elements) << elements.error().message;
  EXPECT_EQ(*elements == *expected.tensor_bytes(1), true);
}

TEST(Observed, TensorsAreThoseThatWereMergedBefore) {
  for (const bool finite : {true, false}) {
    for (const TokensByChannels& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.channels << (finite ? ", finite" : ""));
      const std::vector<Health> tiles = tiles_of(shape, finite);
      const LevelShape base = level_shape(shape.tokens, shape.channels, 0);
      const std::vector<std::byte> bytes = bytes_of(shape);
      const auto expected = recorded_alone(shape, [&](RecordingWriter& writer, TensorRow row) {
        const bool wide = base.columns > 1;
        const TensorDetail detail{wide ? merge_rows(tiles, base) : tiles, wide ? tiles : std::vector<Health>()};
        row.health = merge_all(detail.tokens);
        writer.add(row, detail, bytes);
      });
      const auto copied = recorded_alone(shape, [&](RecordingWriter& writer, const TensorRow& row) {
        std::vector<Health> gone = tiles;
        writer.add_observed(row, {.tiles = gone, .bytes = bytes});
        std::fill(gone.begin(), gone.end(), sample::health(99));
      });
      expect_same_tensor(*copied, *expected, shape);
      const auto lent = recorded_alone(shape, [&](RecordingWriter& writer, const TensorRow& row) {
        const auto memory =
            std::make_shared<const std::pair<std::vector<Health>, std::vector<std::byte>>>(tiles, bytes);
        writer.add_observed(row, {.tiles = memory->first, .elements = memory->second, .memory = memory});
      });
      expect_same_tensor(*lent, *expected, shape);
    }
  }
}

TEST(Observed, WhatWasLentIsLetGoOfOnceItIsWritten) {
  const TokensByChannels shape{3, 1300};
  const auto memory = std::make_shared<const std::vector<Health>>(tiles_of(shape, true));
  auto writer = RecordingWriter::create_in_memory({}).value();
  StepRow step;
  step.id = 1;
  writer->add(step);
  for (std::int64_t id = 1; id <= 3; ++id) {
    writer->add(OpRow{id, 1, 0, "attn_norm", "layer_norm", "{}"}, {});
    TensorRow row;
    row.id = row.op = id;
    row.tokens = shape.tokens;
    row.channels = shape.channels;
    writer->add_observed(row, {.tiles = *memory, .memory = memory});
  }
  EXPECT_EQ(memory.use_count(), 4) << "nothing is copied";
  ASSERT_TRUE(writer->commit_step());
  ASSERT_TRUE(writer->flush());
  ASSERT_TRUE(writer->finish_in_memory(3));
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(Observed, WhatWasLentIsLetGoOfWhereNothingIsWritten) {
  const TokensByChannels shape{3, 1300};
  const auto memory = std::make_shared<const std::vector<Health>>(tiles_of(shape, true));
  const auto refused = recorded_alone({2, 1300}, [&](RecordingWriter& writer, const TensorRow& row) {
    writer.add_observed(row, {.tiles = *memory, .memory = memory});
  });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("9 tiles of health, expected 6"));
  EXPECT_EQ(memory.use_count(), 1);
}

}  // namespace
}  // namespace nanscope
