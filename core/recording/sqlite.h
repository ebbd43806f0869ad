#pragma once
#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

/// The thin layer between rows and SQLite's C interface. Private to core/recording.
namespace nanscope::sqlite {

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
struct CloseBlob {
  void operator()(sqlite3_blob* blob) const { sqlite3_blob_close(blob); }
};
using Database = std::unique_ptr<sqlite3, Close>;

/// Opens a file, or a database in memory when `path` is empty. `flags` as sqlite3_open_v2() takes them. The error does
/// not name the file.
Result<Database> open(const std::filesystem::path& path, int flags);

/// What describe() says of a lock of another process.
inline constexpr std::string_view kHeldLocked = "another process holds it locked";

/// SQLite's description of the connection's last error, with its extended code's meaning.
std::string describe(sqlite3* db, int code);

/// Runs statements that return no rows that matter.
Status execute(sqlite3* db, const std::string& sql);

/// A prepared statement. Columns count from 0, parameters from 1. Text and blobs are bound without
/// a copy: they must live until reset(). A parameter keeps its value from one row to the next, and what it has already
/// is not bound again: most counts of a healthy tensor are those of the one before.
class Statement {
 public:
  Statement() = default;
  static Result<Statement> prepare(sqlite3* db, std::string_view sql);
  explicit operator bool() const { return statement_ != nullptr; }

  Statement& bind(int index, std::int64_t value);
  Statement& bind_real(int index, double value);  ///< NaN is stored as NULL
  Statement& bind(int index, std::string_view text);
  Statement& bind(int index, std::span<const std::byte> blob);
  /// A blob of as many zeros, which take no memory; BlobWriter puts others there.
  Statement& bind_zeros(int index, std::size_t bytes);
  Statement& bind_null(int index);

  /// True when there is a row; an error of an earlier bind() is returned here.
  Result<bool> step();
  /// For statements without rows: step(), then reset().
  Status run();
  void reset();

  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  double real(int column) const;  ///< NULL is NaN
  std::string text(int column) const;
  /// The same where it lies, until the next step().
  std::string_view view(int column) const;
  std::span<const std::byte> blob(int column) const;
  bool is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

 private:
  void note(int code) {
    if (code != SQLITE_OK && error_ == SQLITE_OK) error_ = code;
  }
  void forget(int index) { bound_[static_cast<std::size_t>(index)].reset(); }

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::vector<std::optional<std::int64_t>> bound_;  ///< by parameter: the integer that it has
  int error_ = SQLITE_OK;
};

/// Writes blobs of one column where they lie. One that is bound to a statement SQLite copies once more, into a row. A
/// transaction cannot be committed before close().
class BlobWriter {
 public:
  BlobWriter(std::string table, std::string column) : table_(std::move(table)), column_(std::move(column)) {}
  /// Over the whole blob of a row that is there, which has as many bytes as all parts.
  Status write(sqlite3* db, std::int64_t row, std::initializer_list<std::span<const std::byte>> parts);
  void close() { blob_.reset(); }

 private:
  /// The blob of a row that is there is what put() writes to from now on.
  Status seek(sqlite3* db, std::int64_t row);
  Status put(sqlite3* db, std::span<const std::byte> bytes, std::size_t offset);
  Status checked(sqlite3* db, int code);

  std::string table_;
  std::string column_;
  std::unique_ptr<sqlite3_blob, CloseBlob> blob_;
};

/// A single integer: the first column of the first row, `otherwise` when there is no row.
Result<std::int64_t> query_integer(sqlite3* db, std::string_view sql, std::int64_t otherwise = 0);

}  // namespace nanscope::sqlite
