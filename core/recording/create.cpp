#include <fmt/format.h>

#include <type_traits>

#include "core/recording/insert.h"
#include "core/recording/schema.h"

namespace nanscope::insert {
namespace {

constexpr int kLockTimeoutMs = 60'000;
/// The largest that SQLite has: elements are long.
constexpr int kPageBytes = 64 << 10;

std::pair<std::string_view, std::string_view> pair(std::string_view key, const std::string& value) {
  return {key, value};
}

}  // namespace

std::size_t weight(const Item& item) {
  return std::visit(
      [](const auto& one) -> std::size_t {
        using T = std::decay_t<decltype(one)>;
        std::size_t bytes = sizeof(Item);
        if constexpr (std::is_same_v<T, AddBytes> || std::is_same_v<T, AddPart>) {
          bytes += one.bytes.size();
        } else if constexpr (std::is_same_v<T, AddRequest>) {
          bytes += one.row.prompt.size() + one.row.prompt_tokens.size() * sizeof(std::int32_t);
        } else if constexpr (std::is_same_v<T, KernelRow>) {
          bytes += one.details.size();
        }
        return bytes;
      },
      item);
}

std::size_t weight(const AddOp& item) {
  return sizeof item + item.row.attributes.size() + item.inputs.size() * sizeof(InputRow);
}

std::size_t weight(const AddTensor& item) {
  return sizeof item + item.elements.size() + item.health.tokens.size_bytes() + item.health.tiles.size_bytes();
}

Status Inserter::open(const OutputFile* file, const WriterOptions& options) {
  in_memory_ = file == nullptr;
  auto db = sqlite::open(file != nullptr ? file->path() : std::filesystem::path(),
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  if (!db) return tl::unexpected(std::move(db.error()));
  db_ = std::move(*db);
  sqlite3_busy_timeout(db_.get(), kLockTimeoutMs);
  // Appended pages are written once with a rollback journal, twice with a write-ahead log. Without
  // fsync the file still survives the death of the process: what was written is in the system's
  // cache, and an unfinished transaction is undone by the journal beside it.
  std::string pragmas = fmt::format(
      "PRAGMA page_size = {}; PRAGMA auto_vacuum = NONE; PRAGMA secure_delete = OFF; PRAGMA temp_store = MEMORY; "
      "PRAGMA cache_size = -4096; PRAGMA journal_mode = {}; PRAGMA synchronous = {};",
      in_memory_ ? 8192 : kPageBytes, in_memory_ ? "OFF" : "TRUNCATE", options.durable ? "FULL" : "OFF");
  if (options.max_pages > 0) pragmas += fmt::format("PRAGMA max_page_count = {};", options.max_pages);
  return sqlite::execute(db_.get(), pragmas);
}

/// Views are written as the text that they are: SQLite would parse them twice to create them, which took six times as
/// long as all the rest of an empty recording, and nobody asks them through this connection. In a transaction that
/// creates tables, so that whoever else has the file open reads its schema anew.
Status Inserter::add_views() {
  sqlite3* db = db_.get();
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, nullptr);
  const auto insert_all = [db]() -> Status {
    auto insert = sqlite::Statement::prepare(db, "INSERT INTO sqlite_schema VALUES ('view', ?1, ?1, 0, ?2)");
    if (!insert) return tl::unexpected(std::move(insert.error()));
    for (const auto& view : schema::views()) {
      if (auto status = insert->bind(1, view.name).bind(2, view.sql).run(); !status) return status;
    }
    return {};
  };
  Status added = insert_all();
  sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0, nullptr);
  return added;
}

Status Inserter::create_schema(const RunInfo& run) {
  std::string sql = fmt::format("BEGIN IMMEDIATE; PRAGMA application_id = {}; PRAGMA user_version = {};",
                                schema::kApplicationId, schema::kVersion);
  for (const auto& object : schema::objects()) sql += object.sql + ";\n";
  if (auto status = sqlite::execute(db_.get(), sql); !status) return status;
  if (auto status = add_views(); !status) return status;
  const std::string tile_channels = std::to_string(kTileChannels);
  // Recordings from before have none: there the squares of e5m2 and e5m2fnuz were added up lane by lane.
  const std::string code_sums = "exact";
  auto insert = sqlite::Statement::prepare(db_.get(), "INSERT INTO run VALUES (?, ?)");
  if (!insert) return tl::unexpected(std::move(insert.error()));
  for (const auto& [key, value] :
       {pair("nanscope_version", run.nanscope_version), pair("created", run.created), pair("scenario", run.scenario),
        pair("config", run.config), pair("device", run.device), pair("isa", run.isa), pair("build", run.build),
        pair("cpu_features", run.cpu_features), pair("float_environment", run.float_environment),
        pair("capture", run.capture), pair("tile_channels", tile_channels), pair("code_sums", code_sums)}) {
    if (auto status = insert->bind(1, key).bind(2, value).run(); !status) return status;
  }
  return {};
}

Result<Inserter> Inserter::create(const OutputFile* file, const WriterOptions& options) {
  Inserter inserter;
  if (auto status = inserter.open(file, options); !status) return tl::unexpected(std::move(status.error()));
  return inserter;
}

Status Inserter::begin(const RunInfo& run) {
  progress_.expected_ops = run.expected_ops;
  auto status = create_schema(run);
  if (status) status = prepare_all();
  return status ? commit() : status;
}

}  // namespace nanscope::insert
