

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <iterator>

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
