#include <fmt/format.h>

#include "core/recording/reader.h"
#include "core/recording/schema.h"
#include "core/recording/sqlite.h"

namespace nanscope {
namespace {

Status replace_events(sqlite3* db, std::span<const EventRow> events) {
  if (auto status = sqlite::execute(db, "BEGIN IMMEDIATE; DELETE FROM events"); !status) return status;
  auto insert = sqlite::Statement::prepare(db, "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)");
  if (!insert) return tl::unexpected(std::move(insert.error()));
  for (const EventRow& event : events) {
    auto status = insert->bind(1, event.id)
                      .bind(2, event.fault)
                      .bind(3, event.tensor)
                      .bind(4, event.because)
                      .bind(5, event.summary)
                      .bind(6, event.evidence)
                      .run();
    if (!status) return status;
  }
  return sqlite::execute(db, "COMMIT");
}

}  // namespace

Status write_events(const std::filesystem::path& path, std::span<const EventRow> events) {
  {
    auto recording = Recording::open(path);
    if (!recording) return tl::unexpected(std::move(recording.error()));
    if (recording->schema() != schema::kVersion) {
      return fail(fmt::format("{}: of schema {}, nothing is written to recordings of older schemas than {}",
                              path.string(), recording->schema(), schema::kVersion));
    }
    auto state = recording->state();
    if (!state) return tl::unexpected(std::move(state.error()));
    if (*state == RunState::recording) return fail(path.string() + ": its run still goes on");
  }
  const auto db = sqlite::open(path, SQLITE_OPEN_READWRITE);
  if (!db) return fail(path.string() + ": " + db.error().message);
  sqlite3_db_config(db->get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db->get(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_busy_timeout(db->get(), 5'000);
  auto status = replace_events(db->get(), events);
  if (!status) return fail(path.string() + ": " + status.error().message);
  return {};
}

}  // namespace nanscope
