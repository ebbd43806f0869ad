

#include "core/recording/schema.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

std::string dump(const std::filesystem::path& path) {
  sqlite3* db = nullptr;
  sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
  std::string text;
  const auto line = [](void* into, int, char** row, char**) {
    *static_cast<std::string*>(into) += std::string(row[0]) + ";\n";
    return 0;
  };
  for (const char* pragma : {"application_id", "user_version"}) {
    const std::string sql = "SELECT '" + std::string(pragma) + " ' || " + pragma + " FROM pragma_" + pragma;
    sqlite3_exec(db, sql.c_str(), line, &text, nullptr);
  }
  sqlite3_exec(db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND type <> 'view' ORDER BY rowid", line, &text,
               nullptr);
  sqlite3_close(db);
  return text;
}

std::string code_sums(const std::filesystem::path& path) {
  sqlite3* db = nullptr;
  sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
  std::string text;
  const auto value = [](void* into, int, char** row, char**) {
    *static_cast<std::string*>(into) += row[0];
    return 0;
  };
  sqlite3_exec(db, "SELECT value FROM run WHERE key = 'code_sums'", value, &text, nullptr);
  sqlite3_close(db);
  return text;
}

TEST(Schema, ARecordingSaysThatSumsOfCodesAreExact) {
  const TemporaryFolder folder;
  ASSERT_TRUE(RecordingWriter::create(folder / "s.nanscope", {}).value()->finish());
  EXPECT_EQ(code_sums(folder / "s.nanscope"), "exact");
  EXPECT_EQ(code_sums(NANSCOPE_SOURCE_DIR "/tests/golden/recordings/schema3.nanscope"), "");
}

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

Database open(const std::string& name, int flags) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(name.c_str(), &db, flags, nullptr), SQLITE_OK);
  return Database(db);
}

/// What the schema says of views: type, name, table, root page and text.
std::vector<std::string> stored_views(sqlite3* db) {
  std::vector<std::string> rows;
  const auto add = [](void* into, int, char** row, char**) {
    static_cast<std::vector<std::string>*>(into)->emplace_back(row[0]);
    return 0;
  };
  const char* sql =
      "SELECT json_array(type, name, tbl_name, rootpage, sql) FROM sqlite_schema WHERE type = 'view' ORDER BY name";
  EXPECT_EQ(sqlite3_exec(db, sql, add, &rows, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  return rows;
}

/// They are not created, but written as rows, and have to be the rows that SQLite would have written.
TEST(Schema, ViewsStandThereAsIfSqliteHadCreatedThem) {
  const Database created = open(":memory:", SQLITE_OPEN_READWRITE);
  for (const auto objects : {schema::objects(), schema::views()}) {
    for (const schema::Object& object : objects)
      ASSERT_EQ(sqlite3_exec(created.get(), object.sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << object.name;
  }
  const TemporaryFolder folder;
  ASSERT_TRUE(RecordingWriter::create(folder / "s.nanscope", {}).value()->finish());
  const Database written = open(folder / "s.nanscope", SQLITE_OPEN_READONLY);
  const auto found = stored_views(written.get());
  EXPECT_EQ(found.size(), schema::views().size());
  EXPECT_EQ(found, stored_views(created.get()));
}

/// A difference here means that files of the two versions differ: docs/recording.md has the
/// checklist of what to change with it.
TEST(Schema, IsTheGoldenOne) {
  const TemporaryFolder folder;
  ASSERT_TRUE(RecordingWriter::create(folder / "s.nanscope", {}).value()->finish());
  const std::string found = dump(folder / "s.nanscope");
  const std::string golden_path = NANSCOPE_SOURCE_DIR "/tests/unit/core/recording/schema.golden.sql";
  std::ifstream file(golden_path);
  const std::string golden((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(found, golden) << "run with NANSCOPE_UPDATE_GOLDEN=1 to accept it";
  if (found != golden && std::getenv("NANSCOPE_UPDATE_GOLDEN") != nullptr) std::ofstream(golden_path) << found;
}

}  // namespace
}  // namespace nanscope
