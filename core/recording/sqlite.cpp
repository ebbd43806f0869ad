#include "core/recording/sqlite.h"

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <tuple>

#include "core/system_reason.h"

namespace nanscope::sqlite {

std::string describe(sqlite3* db, int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return "the disk is full";
    case SQLITE_CORRUPT:
      return "the database is damaged";
    case SQLITE_NOTADB:
      return "it is no SQLite database";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return std::string(kHeldLocked);
    case SQLITE_NOMEM:
      return out_of_memory();
    case SQLITE_IOERR:
      if (code == SQLITE_IOERR_WRITE) return "a write was refused (disk or quota full, or a file size limit)";
      return fmt::format("input/output error ({})", code);
    default:
      return db != nullptr ? fmt::format("{} ({})", sqlite3_errmsg(db), code) : sqlite3_errstr(code);
  }
}

Result<Database> open(const std::filesystem::path& path, int flags) {
  static std::once_flag once;
  // Its count of memory in use costs a lock at every allocation, and nobody asks for it. Refused, and then
  // without effect, in a program that uses SQLite before us.
  std::call_once(once, [] { std::ignore = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); });
  // Absolute, so that no name is taken for one of SQLite's special ones.
  const std::string name = path.empty() ? ":memory:" : std::filesystem::absolute(path).string();
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &raw, flags, nullptr);
  Database db(raw);
  if (code != SQLITE_OK) {
    const int reason = db ? sqlite3_system_errno(db.get()) : 0;
    return fail((code & 0xff) == SQLITE_CANTOPEN && reason != 0 ? system_reason(reason) : describe(db.get(), code));
  }
  sqlite3_extended_result_codes(db.get(), 1);
  return db;
}

Status execute(sqlite3* db, const std::string& sql) {
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return fail(describe(db, code));
  return {};
}

Result<Statement> Statement::prepare(sqlite3* db, std::string_view sql) {
  Statement statement;
  sqlite3_stmt* raw = nullptr;
  const int code =
      sqlite3_prepare_v3(db, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  statement.statement_.reset(raw);
  if (code != SQLITE_OK) return fail(describe(db, code));
  statement.bound_.resize(static_cast<std::size_t>(sqlite3_bind_parameter_count(raw)) + 1);
  return statement;
}

Statement& Statement::bind(int index, std::int64_t value) {
  auto& bound = bound_[static_cast<std::size_t>(index)];
  if (bound == value) return *this;
  const int code = sqlite3_bind_int64(statement_.get(), index, value);
  bound = code == SQLITE_OK ? std::optional(value) : std::nullopt;
  note(code);
  return *this;
}

Statement& Statement::bind_real(int index, double value) {
  forget(index);
  note(sqlite3_bind_double(statement_.get(), index, value));
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  const char* data = text.data() != nullptr ? text.data() : "";
  forget(index);
  note(sqlite3_bind_text64(statement_.get(), index, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind(int index, std::span<const std::byte> blob) {
  const void* data = blob.data() != nullptr ? static_cast<const void*>(blob.data()) : "";
  forget(index);
  note(sqlite3_bind_blob64(statement_.get(), index, data, blob.size(), SQLITE_STATIC));
  return *this;
}

Statement& Statement::bind_zeros(int index, std::size_t bytes) {
  forget(index);
  note(sqlite3_bind_zeroblob64(statement_.get(), index, bytes));
  return *this;
}

Statement& Statement::bind_null(int index) {
  forget(index);
  note(sqlite3_bind_null(statement_.get(), index));
  return *this;
}

Result<bool> Statement::step() {
  int code = error_;
  if (code == SQLITE_OK) code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return fail(describe(sqlite3_db_handle(statement_.get()), code));
}

Status Statement::run() {
  auto row = step();
  reset();
  if (!row) return tl::unexpected(std::move(row.error()));
  return {};
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  error_ = SQLITE_OK;
}

double Statement::real(int column) const {
  if (is_null(column)) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(statement_.get(), column);
}

std::string Statement::text(int column) const { return std::string(view(column)); }

std::string_view Statement::view(int column) const {
  // The text first: SQLite may convert it, which changes the number of bytes.
  const auto* data = sqlite3_column_text(statement_.get(), column);
  if (data == nullptr) return {};
  return {reinterpret_cast<const char*>(data),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::span<const std::byte> Statement::blob(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(statement_.get(), column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Status BlobWriter::seek(sqlite3* db, std::int64_t row) {
  int code = SQLITE_OK;
  if (blob_) {
    code = sqlite3_blob_reopen(blob_.get(), row);
  } else {
    sqlite3_blob* raw = nullptr;
    code = sqlite3_blob_open(db, "main", table_.c_str(), column_.c_str(), row, 1, &raw);
    blob_.reset(raw);
  }
  return checked(db, code);
}

Status BlobWriter::put(sqlite3* db, std::span<const std::byte> bytes, std::size_t offset) {
  if (bytes.empty()) return {};
  return checked(
      db, sqlite3_blob_write(blob_.get(), bytes.data(), static_cast<int>(bytes.size()), static_cast<int>(offset)));
}

Status BlobWriter::checked(sqlite3* db, int code) {
  if (code == SQLITE_OK) return {};
  auto failed = fail(describe(db, code));
  blob_.reset();
  return failed;
}

Status BlobWriter::write(sqlite3* db, std::int64_t row, std::initializer_list<std::span<const std::byte>> parts) {
  Status status = seek(db, row);
  std::size_t at = 0;
  for (const std::span part : parts) {
    if (status) status = put(db, part, at);
    at += part.size();
  }
  return status;
}

Result<std::int64_t> query_integer(sqlite3* db, std::string_view sql, std::int64_t otherwise) {
  auto statement = Statement::prepare(db, sql);
  if (!statement) return tl::unexpected(std::move(statement.error()));
  auto row = statement->step();
  if (!row) return tl::unexpected(std::move(row.error()));
  return *row ? statement->integer(0) : otherwise;
}

}  // namespace nanscope::sqlite
