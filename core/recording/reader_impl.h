#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/recording/query.h"
#include "core/recording/reader.h"
#include "core/recording/sqlite.h"

/// The open database behind a Recording. Private to core/recording.
namespace nanscope {

class Recording::Impl {
 public:
  static constexpr const char* kStopped = "stopped";
  static constexpr const char* kEndless = "damaged: its pages hold more rows than fit in the file: some occur twice";
  /// What a row takes in a file at least: a place in its page, a length, a header, an id.
  static constexpr std::uint64_t kLeastRow = 4;
  /// Steps of SQLite's machine that a query may take for each byte of the file; reading all of it takes a tenth.
  static constexpr std::uint64_t kMostSteps = 16;
  static constexpr std::uint64_t kFreeSteps = 1'000'000;

  /// Takes over a database, refuses it unless it is a recording of a known version, and reads what
  /// never changes.
  static Result<std::unique_ptr<Impl>> load(sqlite::Database db, std::filesystem::path path);

  /// A prepared statement on loan: goes back, reset, when it leaves the scope.
  class Loan {
   public:
    Loan(Impl& owner, std::string sql, sqlite::Statement statement)
        : owner_(owner), sql_(std::move(sql)), statement_(std::move(statement)) {}
    ~Loan() {
      statement_.reset();
      owner_.statements_[std::move(sql_)] = std::move(statement_);
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    sqlite::Statement* operator->() { return &statement_; }
    sqlite::Statement& operator*() { return statement_; }

   private:
    Impl& owner_;
    std::string sql_;
    sqlite::Statement statement_;
  };
  Result<std::unique_ptr<Loan>> prepare(const std::string& sql);

  class Cursor;
  class TensorCheck;
  class Check;

  /// Runs a query; `decode` makes a row of each result, `visit` takes it and returns false to stop.
  template <class Decode, class Visit>
  Status each(const sqlite::Query& query, Decode decode, Visit visit);
  /// All rows of a query.
  template <class Row>
  Result<std::vector<Row>> all(const sqlite::Query& query, Result<Row> (*decode)(const sqlite::Statement&));
  /// The first row of a query, if it has one.
  template <class Row>
  Result<std::optional<Row>> first(const sqlite::Query& query, Result<Row> (*decode)(const sqlite::Statement&));

  tl::unexpected<Error> error(const std::string& message) const { return fail(path.string() + ": " + message); }
  /// Steps that a query gives, with all of their spans.
  Result<std::vector<StepRow>> steps(const sqlite::Query& query);
  /// The stored level of a tensor's tiles that is the nearest at or below `level`, if there is one.
  Result<std::optional<TileLevel>> stored_tiles(const TensorRow& tensor, int level);
  /// `size` bytes of a tensor's elements from `offset` on, which must be within it.
  Result<std::vector<std::byte>> read_elements(const TensorRow& tensor, std::int64_t offset, std::int64_t size);
  /// Once a tensor; `whole`: its elements, if they were read, else they are. Errors: they have not the recorded hash.
  Status compare_hash(const TensorRow& tensor, std::span<const std::byte> whole);
  /// Size of the file as SQLite sees it, which grows while it is written. Of a database in memory, which is our own,
  /// as large as can be.
  std::uint64_t file_bytes() const;
  /// Ends a query that was stopped, or that goes round in a damaged file; called every so many steps.
  void watch_queries();
  /// True while a live process holds the writer's lock.
  bool writer_lives() const;

  sqlite::Database db;
  std::filesystem::path path;
  RunInfo info;
  std::uint32_t version = 0;  ///< of its schema
  std::stop_token stop;
  /// The one that was asked for last, whose bytes are asked for next. Rows of a recording do not change.
  std::optional<TensorRow> last_tensor;

 private:
  bool endless() const { return steps_ / kMostSteps > kFreeSteps + bytes_; }

  Status check_version();
  Status check_schema();
  Status load_info();
  std::map<std::string, sqlite::Statement> statements_;
  std::unordered_set<std::int64_t> compared_;  ///< tensors whose elements have their hash
  std::uint64_t steps_ = 0;                    ///< since a query was prepared
  std::uint64_t bytes_ = UINT64_MAX / 2;       ///< of the file, when that query was prepared
};

template <class Decode, class Visit>
Status Recording::Impl::each(const sqlite::Query& query, Decode decode, Visit visit) {
  auto loan = prepare(query.sql());
  if (!loan) return tl::unexpected(std::move(loan.error()));
  sqlite::Statement& statement = **loan.value();
  query.bind(statement);
  const std::uint64_t most = bytes_ / kLeastRow;
  for (std::uint64_t rows = 0;; ++rows) {
    if (stop.stop_requested()) return error(kStopped);
    auto more = statement.step();
    if (!more) return error(endless() ? kEndless : more.error().message);
    if (!*more) return {};
    if (rows > most) return error(kEndless);
    auto row = decode(statement);
    if (!row) return error(row.error().message);
    if (!visit(std::move(*row))) return {};
  }
}

template <class Row>
Result<std::vector<Row>> Recording::Impl::all(const sqlite::Query& query,
                                              Result<Row> (*decode)(const sqlite::Statement&)) {
  std::vector<Row> rows;
  auto status = each(query, decode, [&](Row row) {
    rows.push_back(std::move(row));
    return true;
  });
  if (!status) return tl::unexpected(std::move(status.error()));
  return rows;
}

template <class Row>
Result<std::optional<Row>> Recording::Impl::first(const sqlite::Query& query,
                                                  Result<Row> (*decode)(const sqlite::Statement&)) {
  std::optional<Row> found;
  auto status = each(query, decode, [&](Row row) {
    found = std::move(row);
    return false;
  });
  if (!status) return tl::unexpected(std::move(status.error()));
  return found;
}

}  // namespace nanscope
