#include "core/recording/row_image.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/recording/schema.h"
#include "core/recording/sqlite.h"

/// What stock SQLite reads of a database that it did not write.
namespace nanscope::sqlite {
namespace {

const RowImage::Table kFirst{"first", "CREATE TABLE first (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, t TEXT) STRICT"};
const RowImage::Table kSecond{"second", "CREATE TABLE second (id INTEGER PRIMARY KEY, x ANY) STRICT"};
const RowImage::Index kIndex{"first_n", 0, "CREATE INDEX first_n ON first (n) WHERE n > 0"};

struct Row {
  std::int64_t id = 0;
  std::int64_t n = 0;
  std::string t;
};

RowImage small() { return {{kFirst, kSecond}, {kIndex}}; }

void add(RowImage& image, const Row& row) {
  Record record;
  record.null().integer(row.n).text(row.t);
  image.add(0, row.id, record.bytes());
  if (row.n > 0) image.add_key(0, row.n, row.id);
}

std::string text(sqlite3* db, std::string_view sql) {
  auto statement = Statement::prepare(db, sql);
  EXPECT_TRUE(statement) << statement.error().message;
  const auto found = statement->step();
  EXPECT_TRUE(found) << found.error().message;
  return *found ? statement->text(0) : "nothing";
}

Database shown(std::span<std::byte> image) {
  auto db = open({}, SQLITE_OPEN_READWRITE).value();
  const auto size = static_cast<sqlite3_int64>(image.size());
  EXPECT_EQ(sqlite3_deserialize(db.get(), "main", reinterpret_cast<unsigned char*>(image.data()), size, size,
                                SQLITE_DESERIALIZE_READONLY),
            SQLITE_OK);
  EXPECT_EQ(text(db.get(), "PRAGMA integrity_check"), "ok");
  return db;
}

void expect_rows(sqlite3* db, const std::vector<Row>& rows) {
  auto statement = Statement::prepare(db, "SELECT id, n, t FROM first ORDER BY id").value();
  for (const Row& row : rows) {
    ASSERT_TRUE(statement.step().value()) << row.id;
    EXPECT_EQ(statement.integer(0), row.id);
    EXPECT_EQ(statement.integer(1), row.n);
    EXPECT_TRUE(statement.text(2) == row.t) << row.t.size() << " bytes";
  }
  EXPECT_FALSE(statement.step().value());
}

std::string letters(std::mt19937_64& random, std::size_t count) {
  std::string text(count, ' ');
  for (char& letter : text) letter = static_cast<char>('a' + random() % 26);
  return text;
}

TEST(RowImage, IsADatabaseWithoutRows) {
  RowImage image = small();
  EXPECT_TRUE(image.empty());
  const auto db = shown(image.finish());
  EXPECT_EQ(text(db.get(), "SELECT group_concat(name || ' ' || sql, '; ') FROM sqlite_schema"),
            fmt::format("first {}; second {}; first_n {}", kFirst.sql, kSecond.sql, kIndex.sql));
  EXPECT_EQ(text(db.get(), "SELECT count(*) FROM first"), "0");
}

/// Sizes around each step of where a record lies: whole in its leaf, and in one, two and three pages beside.
TEST(RowImage, RowsOfAnySizeAreRead) {
  std::mt19937_64 random(1);
  for (const std::size_t around : {0U, 100U, 1005U, 8157U, 8188U + 1005U, 2 * 8188U + 1005U, 2 * 8188U + 8157U}) {
    RowImage image = small();
    std::vector<Row> rows;
    for (std::size_t size = std::max(around, std::size_t{20}) - 20; size < around + 20; ++size) {
      rows.push_back({static_cast<std::int64_t>(rows.size()) + 1, 0, letters(random, size)});
      add(image, rows.back());
    }
    const auto db = shown(image.finish());
    expect_rows(db.get(), rows);
  }
}

TEST(RowImage, RowsOfManyPagesAreRead) {
  std::mt19937_64 random(2);
  RowImage image = small();
  for (int turn = 0; turn < 3; ++turn) {  // the same memory again
    std::vector<Row> rows;
    std::int64_t id = turn == 1 ? std::int64_t{1} << 50 : -3;
    for (int i = 0; i < 5000; ++i) {
      id += 1 + static_cast<std::int64_t>(random() % 300);
      const auto n = static_cast<std::int64_t>(random()) >> (random() % 64);
      rows.push_back({id, std::min<std::int64_t>(n, 0), letters(random, random() % 200)});
      add(image, rows.back());
      Record record;
      record.null().real(static_cast<double>(i) / 4);
      image.add(1, i + 1, record.bytes());
    }
    EXPECT_EQ(image.rows(0), 5000);
    EXPECT_GT(image.bytes(), std::size_t{500'000});
    const auto db = shown(image.finish());
    expect_rows(db.get(), rows);
    EXPECT_EQ(text(db.get(), "SELECT count(*) || ' ' || sum(x) || ' ' || typeof(max(x)) FROM second"),
              "5000 3124375.0 real");
    image.clear();
    EXPECT_TRUE(image.empty());
    EXPECT_EQ(image.rows(0), 0);
  }
}

/// Around a leaf that is full, two of them with an entry between, and so on.
TEST(RowImage, AnIndexOfAnySizeIsRead) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t count : {1, 2, 354, 355, 356, 357, 710, 711, 712, 713, 1067, 1068, 5000}) {
    RowImage image = small();
    std::vector<Row> rows;
    for (std::int64_t i = 1; i <= count; ++i) {
      rows.push_back({kLargest - count + i, kLargest - 2 * count + i / 2, ""});
      add(image, rows.back());
    }
    const auto db = shown(image.finish());
    expect_rows(db.get(), rows);
    EXPECT_EQ(text(db.get(), "SELECT count(*) FROM first INDEXED BY first_n WHERE n > 0"), std::to_string(count));
  }
}

/// Of a recording's tables: else SQLite takes each row apart and makes it anew, which is as slow as a statement a row.
TEST(RowImage, SqliteCopiesItsRecordsWhole) {
  const auto db = open({}, SQLITE_OPEN_READWRITE).value();
  const auto sql = [](std::string_view name) {
    const auto objects = schema::objects();
    return std::find_if(objects.begin(), objects.end(), [&](const auto& object) { return object.name == name; })->sql;
  };
  RowImage image({{"ops", sql("ops")}, {"tensors", sql("tensors")}}, {{"tensors_bad", 1, sql("tensors_bad")}});
  for (const std::string_view name : {"ops", "tensors", "tensors_bad"}) ASSERT_TRUE(execute(db.get(), sql(name)));
  ASSERT_TRUE(execute(db.get(), "ATTACH ':memory:' AS rows"));
  const std::span<std::byte> bytes = image.finish();
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  ASSERT_EQ(sqlite3_deserialize(db.get(), "rows", reinterpret_cast<unsigned char*>(bytes.data()), size, size,
                                SQLITE_DESERIALIZE_READONLY),
            SQLITE_OK);
  for (const RowImage::Table& table : image.tables()) {
    auto plan =
        Statement::prepare(db.get(), fmt::format("EXPLAIN INSERT INTO main.{0} SELECT * FROM rows.{0}", table.name))
            .value();
    while (plan.step().value()) {
      EXPECT_NE(plan.text(1), "Column") << table.name;
      EXPECT_NE(plan.text(1), "MakeRecord") << table.name;
    }
  }
}

}  // namespace
}  // namespace nanscope::sqlite
