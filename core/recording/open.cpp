#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>

#include "core/recording/reader_impl.h"
#include "core/recording/schema.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

constexpr int kLockTimeoutMs = 5'000;
constexpr std::size_t kHeaderBytes = 100;
constexpr std::string_view kMagic{"SQLite format 3\0", 16};
constexpr std::array<unsigned char, 8> kJournalMagic = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};

/// The first 100 bytes of the file (sqlite.org/fileformat2.html, 1.3).
struct Header {
  std::int64_t file_bytes = 0;
  std::array<unsigned char, kHeaderBytes> bytes{};

  std::uint32_t word(std::size_t at) const {
    return (std::uint32_t{bytes[at]} << 24) | (std::uint32_t{bytes[at + 1]} << 16) |
           (std::uint32_t{bytes[at + 2]} << 8) | bytes[at + 3];
  }
  std::int64_t page_bytes() const {
    const std::int64_t stored = (std::int64_t{bytes[16]} << 8) | bytes[17];
    return stored == 1 ? 65536 : stored;
  }
  std::int64_t expected_bytes() const { return page_bytes() * std::int64_t{word(28)}; }
  bool magic() const {
    return std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                      [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; });
  }
};

/// Reads through SQLite's own file handle: closing another descriptor of the same file would drop
/// the locks of a writer in this process (POSIX locks belong to the process).
Result<Header> read_header(sqlite3* db, const fs::path& path) {
  sqlite3_file* file = nullptr;
  if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK || file == nullptr ||
      file->pMethods == nullptr) {
    return fail(path.string() + ": cannot be read");
  }
  Header header;
  sqlite3_int64 size = 0;
  if (file->pMethods->xFileSize(file, &size) != SQLITE_OK) return fail(path.string() + ": cannot be read");
  header.file_bytes = size;
  if (size == 0) {
    return fail(path.string() + ": empty file (0 bytes): nothing was recorded, or the run died before it began");
  }
  if (size >= static_cast<sqlite3_int64>(kHeaderBytes)) {
    if (file->pMethods->xRead(file, header.bytes.data(), kHeaderBytes, 0) != SQLITE_OK) {
      return fail(path.string() + ": cannot be read");
    }
  }
  if (!header.magic()) {
    return fail(fmt::format("{}: not a recording: at offset 0, expected an SQLite header, found something else",
                            path.string()));
  }
  return header;
}

/// Before SQLite looks at the pages: it may undo what another program left half-written, and make files beside it.
Status check_owner(const Header& header, const fs::path& path) {
  if (header.word(68) != schema::kApplicationId) {
    return fail(
        fmt::format("{}: an SQLite database, but not a nanscope recording (application id 0x{:08x} at offset "
                    "68, expected 0x{:08x})",
                    path.string(), header.word(68), schema::kApplicationId));
  }
  if (header.bytes[18] != 1 || header.bytes[19] != 1) {
    return fail(path.string() +
                ": in the write-ahead mode of SQLite (offset 18), in which no recording is written; undo it with "
                "sqlite3 FILE 'PRAGMA journal_mode = DELETE'");
  }
  return {};
}

Status check_header(const Header& header, const fs::path& path) {
  if (header.word(60) > schema::kVersion) {
    return fail(fmt::format("{}: written by a newer nanscope (schema {}, this one reads up to {}); upgrade nanscope",
                            path.string(), header.word(60), schema::kVersion));
  }
  if (header.word(60) == 0) return fail(path.string() + ": damaged: schema version 0 at offset 60");
  if (header.file_bytes < header.expected_bytes()) {
    return fail(fmt::format("{}: truncated: {} of {} bytes are there", path.string(), header.file_bytes,
                            header.expected_bytes()));
  }
  return {};
}

/// Nothing in the file may run code, reach other files or make us allocate beyond its size.
void harden(sqlite3* db) {
  sqlite3_busy_timeout(db, kLockTimeoutMs);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 100'000);
  std::ignore = sqlite::execute(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA query_only = ON;");
}

Result<sqlite::Database> open_database(const fs::path& path, int flags) {
  auto db = sqlite::open(path, flags | SQLITE_OPEN_NOMUTEX);
  if (!db) return fail(path.string() + ": cannot be opened: " + db.error().message);
  return db;
}

int probe(sqlite3* db) { return sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", nullptr, nullptr, nullptr); }

/// A journal that names a super-journal makes SQLite open, and perhaps delete, the file it names.
/// Writers of recordings never make one.
bool names_other_files(const fs::path& journal) {
  std::ifstream file(journal, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() < 8) return false;
  file.seekg(-8, std::ios::end);
  std::array<char, 8> tail{};
  file.read(tail.data(), tail.size());
  return std::equal(tail.begin(), tail.end(), kJournalMagic.begin(),
                    [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; });
}

/// Undoes the unfinished transaction that a killed writer left in `path` and its journal.
Status recover(const fs::path& path) {
  const fs::path journal = path.string() + "-journal";
  if (names_other_files(journal)) {
    return fail(journal.string() + ": refused: the journal of a recording never names other files");
  }
  auto db = open_database(path, SQLITE_OPEN_READWRITE);
  if (!db) return tl::unexpected(std::move(db.error()));
  const bool read_only = sqlite3_db_readonly(db->get(), "main") == 1;
  sqlite3_extended_result_codes(db->get(), 1);
  sqlite3_busy_timeout(db->get(), kLockTimeoutMs);
  const int code = read_only ? SQLITE_READONLY_ROLLBACK : probe(db->get());
  if (code == SQLITE_OK) return {};
  return fail(
      fmt::format("{}: its writer was killed within a transaction, which must be undone, but the file or its "
                  "folder cannot be written ({}); copy it together with {} to a folder that can",
                  path.string(), sqlite3_errstr(code), journal.filename().string()));
}

Status check_kind(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) return fail(path.string() + ": no such file");
  if (fs::is_directory(status)) return fail(path.string() + ": a folder, expected a recording file");
  if (!fs::is_regular_file(status)) return fail(path.string() + ": not a regular file");
  return {};
}

}  // namespace

Result<Recording> Recording::open(const fs::path& path) {
  if (auto status = check_kind(path); !status) return tl::unexpected(std::move(status.error()));
  auto db = open_database(path, SQLITE_OPEN_READONLY);
  if (!db) return tl::unexpected(std::move(db.error()));
  auto header = read_header(db->get(), path);
  if (!header) return tl::unexpected(std::move(header.error()));
  if (auto status = check_owner(*header, path); !status) return tl::unexpected(std::move(status.error()));
  harden(db->get());
  int code = probe(db->get());
  if (code == SQLITE_READONLY_ROLLBACK || code == SQLITE_READONLY_RECOVERY || code == SQLITE_CANTOPEN) {
    if (auto status = recover(path); !status) return tl::unexpected(std::move(status.error()));
    code = probe(db->get());
  }
  // After recovery: a killed transaction may have changed the header or left the file short.
  header = read_header(db->get(), path);
  if (!header) return tl::unexpected(std::move(header.error()));
  if (auto status = check_owner(*header, path); !status) return tl::unexpected(std::move(status.error()));
  if (auto status = check_header(*header, path); !status) return tl::unexpected(std::move(status.error()));
  if (code != SQLITE_OK) return fail(path.string() + ": " + sqlite::describe(db->get(), code));
  auto impl = Impl::load(std::move(*db), path);
  if (!impl) return tl::unexpected(std::move(impl.error()));
  return Recording(std::move(*impl));
}

Result<std::unique_ptr<Recording::Impl>> Recording::Impl::load(sqlite::Database db, fs::path path) {
  harden(db.get());
  auto impl = std::make_unique<Impl>();
  impl->db = std::move(db);
  impl->path = std::move(path);
  impl->watch_queries();
  if (auto status = impl->check_version(); !status) return tl::unexpected(std::move(status.error()));
  if (auto status = impl->check_schema(); !status) return tl::unexpected(std::move(status.error()));
  if (auto status = impl->load_info(); !status) return tl::unexpected(std::move(status.error()));
  return impl;
}

void Recording::Impl::watch_queries() {
  static constexpr int kSteps = 1000;  // some ten microseconds of SQLite's machine
  const auto ends = [](void* opaque) {
    auto* impl = static_cast<Impl*>(opaque);
    impl->steps_ += kSteps;
    return impl->stop.stop_requested() || impl->endless() ? 1 : 0;
  };
  sqlite3_progress_handler(db.get(), kSteps, ends, this);
}

std::uint64_t Recording::Impl::file_bytes() const {
  sqlite3_file* file = nullptr;
  sqlite3_int64 size = 0;
  const int found = sqlite3_file_control(db.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (found != SQLITE_OK || file == nullptr || file->pMethods == nullptr) return UINT64_MAX / 2;
  return file->pMethods->xFileSize(file, &size) == SQLITE_OK ? static_cast<std::uint64_t>(size) : 0;
}

Status Recording::Impl::check_version() {
  auto found = sqlite::query_integer(db.get(), "PRAGMA user_version", 0);
  if (!found) return error(found.error().message);
  // The header was looked at before; in between a writer of another version may have replaced the file.
  if (*found < 1 || *found > std::int64_t{schema::kVersion}) return error("replaced while it was opened");
  version = static_cast<std::uint32_t>(*found);
  return {};
}

Status Recording::Impl::check_schema() {
  std::map<std::string, std::string> found;
  auto statement =
      sqlite::Statement::prepare(db.get(), "SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'index')");
  if (!statement) return error(statement.error().message);
  for (;;) {
    auto row = statement->step();
    if (!row) return error(row.error().message);
    if (!*row) break;
    found[statement->text(0)] = statement->text(1);
  }
  for (const auto& object : schema::objects(version)) {
    const auto it = found.find(std::string(object.name));
    if (it == found.end()) return error(fmt::format("damaged: the table or index '{}' is missing", object.name));
    if (it->second != object.sql) {
      return error(fmt::format("damaged: '{}' is not defined as schema {} defines it", object.name, version));
    }
  }
  return {};
}

Status Recording::Impl::load_info() {
  auto statement = sqlite::Statement::prepare(db.get(), "SELECT key, value FROM run");
  if (!statement) return error(statement.error().message);
  std::map<std::string, std::string> values;
  for (;;) {
    auto row = statement->step();
    if (!row) return error(row.error().message);
    if (!*row) break;
    values[statement->text(0)] = statement->text(1);
  }
  for (const auto& [key, field] : {std::pair<const char*, std::string*>{"nanscope_version", &info.nanscope_version},
                                   {"created", &info.created},
                                   {"scenario", &info.scenario},
                                   {"config", &info.config},
                                   {"device", &info.device},
                                   {"isa", &info.isa},
                                   {"build", &info.build},
                                   {"cpu_features", &info.cpu_features},
                                   {"float_environment", &info.float_environment},
                                   {"capture", &info.capture}}) {
    const auto it = values.find(key);
    if (it == values.end()) return error(fmt::format("damaged: '{}' is missing in table run", key));
    *field = std::move(it->second);
  }
  if (const std::string& width = values["tile_channels"]; width != std::to_string(kTileChannels)) {
    return error(fmt::format("its health tiles are '{}' channels wide, this nanscope reads {}", width.substr(0, 20),
                             kTileChannels));
  }
  auto expected = sqlite::query_integer(db.get(), "SELECT expected_ops FROM progress", -1);
  if (!expected) return error(expected.error().message);
  if (*expected < 0) return error("damaged: table progress is empty or negative");
  info.expected_ops = *expected;
  return {};
}

Result<std::unique_ptr<Recording::Impl::Loan>> Recording::Impl::prepare(const std::string& sql) {
  if (stop.stop_requested()) return error(kStopped);
  steps_ = 0;
  bytes_ = file_bytes();
  if (auto node = statements_.extract(sql); !node.empty()) {
    return std::make_unique<Loan>(*this, sql, std::move(node.mapped()));
  }
  auto statement = sqlite::Statement::prepare(db.get(), sql);
  if (!statement) return error(statement.error().message);
  return std::make_unique<Loan>(*this, sql, std::move(*statement));
}

bool Recording::Impl::writer_lives() const {
  // The writer holds SQLite's reserved lock, but for the moment between two transactions.
  for (int attempt = 0; attempt < 20; ++attempt) {
    sqlite3_file* file = nullptr;
    int reserved = 0;
    if (sqlite3_file_control(db.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK && file != nullptr &&
        file->pMethods != nullptr && file->pMethods->xCheckReservedLock(file, &reserved) == SQLITE_OK &&
        reserved != 0) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace nanscope
