#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/core/recording/sample.h"

/// Health of token rows and tiles, stored whole or as numbers alone: what is read is what was written, bit for bit.
namespace nanscope {
namespace {

using testing::HasSubstr;

struct Shape {
  std::int64_t tokens;
  std::int64_t channels;
};

/// A tile of finite numbers none of which is zero, subnormal or the largest.
Health finite(std::int64_t elements, std::uint32_t seed) {
  Health h;
  h.count = static_cast<std::uint64_t>(elements);
  h.min = -1.5F - static_cast<float>(seed % 7);
  h.max = 0.25F + static_cast<float>(seed % 11);
  h.absmax = std::max(-h.min, h.max);
  h.sum = 0.1 * seed - 3;
  h.sum_sq = 1.0 / (1.0 + seed);
  return h;
}

TensorDetail finite_detail(const Shape& shape) {
  const LevelShape base = level_shape(shape.tokens, shape.channels, 0);
  std::vector<Health> tiles;
  for (std::int64_t row = 0; row < base.rows; ++row) {
    for (std::int64_t column = 0; column < base.columns; ++column) {
      const std::int64_t left = shape.channels - column * kTileChannels;
      tiles.push_back(finite(std::min(left, kTileChannels), static_cast<std::uint32_t>(31 * row + column)));
    }
  }
  if (base.columns == 1) return {tiles, {}};
  return {merge_rows(tiles, base), tiles};
}

class Details : public testing::Test {
 protected:
  Recording written(const Shape& shape, const TensorDetail& detail) {
    auto writer = RecordingWriter::create(path_, sample::run_info()).value();
    StepRow step;
    step.id = 1;
    step.tokens = step.context = shape.tokens;
    writer->add(step);
    writer->add(OpRow{1, 1, 0, "attn_norm", "layer_norm", "{}"}, {});
    TensorRow row;
    row.id = row.op = 1;
    row.role = "out";
    row.format = Format::f32;
    row.tokens = shape.tokens;
    row.channels = shape.channels;
    row.health = merge_all(detail.tokens);
    writer->add(row, detail);
    EXPECT_TRUE(writer->commit_step());
    EXPECT_TRUE(writer->finish(1));
    return Recording::open_checked(path_).value();
  }

  void expect_same(const Recording& recording, const Shape& shape, const TensorDetail& detail) {
    EXPECT_TRUE(sample::same(recording.token_health(1).value(), detail.tokens));
    std::vector<Health> level = detail.tiles.empty() ? detail.tokens : detail.tiles;
    for (int i = 0; i < pyramid_levels(shape.tokens, shape.channels); ++i) {
      if (i > 0) level = merge_level(level, level_shape(shape.tokens, shape.channels, i - 1));
      EXPECT_TRUE(sample::same(recording.tiles(1, i).value().tiles, level)) << "level " << i;
    }
  }

  /// What a statement of one row of one column gives.
  std::string asked(const std::string& sql) {
    sqlite3* db = nullptr;
    sqlite3_open_v2(path_.c_str(), &db, SQLITE_OPEN_READWRITE, nullptr);
    std::string found;
    const auto take = [](void* into, int, char** values, char**) {
      *static_cast<std::string*>(into) = values[0];
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), take, &found, nullptr), SQLITE_OK);
    sqlite3_close(db);
    return found;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "d.nanscope";
};

TEST_F(Details, OfFiniteNumbersAreStoredInTwentyFourBytes) {
  for (const Shape& shape : {Shape{5, 64}, Shape{3, 1300}, Shape{1, 513}, Shape{1500, 600}, Shape{2000, 16}}) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.channels);
    const TensorDetail detail = finite_detail(shape);
    {
      const Recording recording = written(shape, detail);
      expect_same(recording, shape, detail);
    }
    EXPECT_EQ(asked("SELECT length(token_rows) FROM detail"), std::to_string(24 * shape.tokens));
    EXPECT_EQ(asked("SELECT length(tiles) % 24 FROM detail"), "0");
    std::filesystem::remove(path_);
  }
}

TEST_F(Details, AreStoredWholeWhereOneTileCountsMore) {
  // One level of tiles, and several: few bytes and many.
  for (const Shape& shape : {Shape{40, 1300}, Shape{700, 1024}, Shape{1500, 1024}}) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.channels);
    for (std::uint64_t Health::*count : {&Health::zero, &Health::nan, &Health::saturated, &Health::clipped}) {
      TensorDetail detail = finite_detail(shape);
      detail.tiles[100].*count = 1;
      const std::int64_t columns = level_shape(shape.tokens, shape.channels, 0).columns;
      const std::int64_t bad = 100 / columns * shape.channels + 100 % columns * kTileChannels + 88;
      if (count == &Health::nan) detail.tiles[100].first_bad = bad;
      detail.tokens = merge_rows(detail.tiles, level_shape(shape.tokens, shape.channels, 0));
      {
        const Recording recording = written(shape, detail);
        expect_same(recording, shape, detail);
      }
      EXPECT_EQ(asked("SELECT length(token_rows) FROM detail"),
                std::to_string(static_cast<std::int64_t>(sizeof(Health)) * shape.tokens));
      std::filesystem::remove(path_);
    }
  }
}

TEST_F(Details, KeepWhatIsOddAboutTheirNumbers) {
  const Shape shape{3, 64};
  TensorDetail detail = finite_detail(shape);
  detail.tokens[1].absmax = 77;
  const Recording recording = written(shape, detail);
  expect_same(recording, shape, detail);
}

TEST_F(Details, OfNumbersAreDecodedByTheView) {
  const Shape shape{3, 64};
  { const Recording recording = written(shape, finite_detail(shape)); }
  const std::string row =
      "SELECT token || ' ' || elements || ' ' || nan || ' ' || zero || ' ' || first_bad || ' ' || "
      "printf('%.9g %.9g %.9g', min, max, absmax) FROM v_token_health WHERE token = ";
  EXPECT_EQ(asked(row + "0"), "0 64 0 0 -1 -1.5 0.25 1.5");
  EXPECT_EQ(asked(row + "1"), "1 64 0 0 -1 -4.5 9.25 9.25");
  EXPECT_EQ(asked(row + "2"), "2 64 0 0 -1 -7.5 7.25 7.5");
  EXPECT_EQ(asked("SELECT count(*) FROM v_token_health"), "3");
}

TEST_F(Details, OfAnotherLengthAreDamage) {
  const Shape shape{3, 1300};
  const TensorDetail detail = finite_detail(shape);
  const auto damaged = [&](const std::string& sql) {
    std::filesystem::remove(path_);
    { const Recording recording = written(shape, detail); }
    asked(sql);
    const Result<Recording> found = Recording::open_checked(path_);
    return found ? std::string("nothing") : found.error().message;
  };
  EXPECT_EQ(damaged("UPDATE detail SET token_rows = zeroblob(72)"), "nothing");
  EXPECT_THAT(damaged("UPDATE detail SET token_rows = zeroblob(336)"), HasSubstr("336 bytes instead of 72"));
  EXPECT_THAT(damaged("UPDATE detail SET tiles = zeroblob(9 * 112)"), HasSubstr("1008 bytes of tiles in 1 levels"));
  EXPECT_THAT(damaged("UPDATE tensors SET detail = 2"), HasSubstr("72 bytes instead of 336"));
  EXPECT_THAT(damaged("UPDATE tensors SET detail = 4"), HasSubstr("in place 4"));
}

}  // namespace
}  // namespace nanscope
