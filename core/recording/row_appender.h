#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/recording/record.h"
#include "core/recording/row_image.h"
#include "core/recording/rows.h"
#include "core/recording/sqlite.h"

/// Private to core/recording.
namespace nanscope::insert {

/// Rows of `ops` and `tensors`, which are nearly all rows of a recording, on their way into their tables: SQLite takes
/// them some hundred at a time from a database in memory (see RowImage), which is attached as `rows` until the
/// transaction ends. Of one connection, which is given to each call.
class RowAppender {
 public:
  RowAppender();

  /// Rows of each table come in ascending order of their ids. `inputs` is the column's text.
  Status add(sqlite3* db, const OpRow& row, std::string_view inputs, std::int64_t first_tensor);
  /// `detail` is the column's value, `bytes` the size of all elements.
  Status add(sqlite3* db, const TensorRow& row, std::int64_t detail, std::size_t bytes);
  /// Of a tensor that is not in its table yet.
  std::optional<std::size_t> bytes_of(std::int64_t tensor) const;

  /// What is left, at the end of a transaction.
  Status append(sqlite3* db);
  /// After the end of a transaction, however it ended: what was not appended is forgotten.
  Status detach(sqlite3* db);

 private:
  enum Table : std::size_t { kOps, kTensors, kTables };
  enum Index : std::size_t { kTensorsBad };

  static sqlite::RowImage make_image();
  Status attach(sqlite3* db);
  Status append_when_many(sqlite3* db);
  void forget();

  sqlite::RowImage rows_;
  sqlite::RowImage shown_;  ///< what SQLite was given last, and may read until it is given something else
  std::array<sqlite::Statement, kTables> statements_;
  sqlite::Record record_;
  bool attached_ = false;
  /// Of the tensors in rows_.
  struct Shape {
    std::int64_t tensor;
    std::size_t bytes;
  };
  std::vector<Shape> shapes_;
};

}  // namespace nanscope::insert
