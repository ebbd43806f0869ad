#include "core/recording/row_appender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/recording/health_columns.h"
#include "core/recording/names.h"
#include "core/recording/schema.h"

namespace nanscope::insert {
namespace {

/// Rows are appended once they are this much: SQLite takes as long to turn to them as for some tens of rows.
constexpr std::size_t kManyBytes = std::size_t{256} << 10;

}  // namespace

sqlite::RowImage RowAppender::make_image() {
  const auto sql = [](std::string_view name) {
    const auto objects = schema::objects();
    return std::find_if(objects.begin(), objects.end(), [&](const auto& object) { return object.name == name; })->sql;
  };
  return {{{"ops", sql("ops")}, {"tensors", sql("tensors")}}, {{"tensors_bad", kTensors, sql("tensors_bad")}}};
}

RowAppender::RowAppender() : rows_(make_image()), shown_(make_image()) {}

Status RowAppender::add(sqlite3* db, const OpRow& row, std::string_view inputs, std::int64_t first_tensor) {
  record_.clear();
  record_.null()
      .integer(row.step)
      .integer(row.layer)
      .text(row.name)
      .text(row.kind)
      .text(row.attributes)
      .text(inputs)
      .integer(first_tensor)
      .integer(row.by_name);
  rows_.add(kOps, row.id, record_.bytes());
  return append_when_many(db);
}

Status RowAppender::add(sqlite3* db, const TensorRow& row, std::int64_t detail, std::size_t bytes) {
  record_.clear();
  record_.null()
      .integer(row.op)
      .text(row.role)
      .text(name(row.format))
      .integer(row.tokens)
      .integer(row.channels)
      .integer(row.heads)
      .integer(row.first_token)
      .integer(static_cast<std::int64_t>(row.hash))
      .integer(detail);
  schema::each_health_column(
      row.health, [this](std::int64_t value) { record_.integer(value); },
      [this](double value) { record_.real(value); });
  record_.text(row.axis ? words::word(words::kAxes, *row.axis) : std::string_view())
      .integer(row.sequence)
      .text(row.name)
      .integer(row.known)
      .integer(row.guessed)
      .integer(row.stated);
  rows_.add(kTensors, row.id, record_.bytes());
  if (row.health.bad() > 0) rows_.add_key(kTensorsBad, row.op, row.id);
  shapes_.push_back({row.id, bytes});
  return append_when_many(db);
}

std::optional<std::size_t> RowAppender::bytes_of(std::int64_t tensor) const {
  const auto found = std::lower_bound(shapes_.begin(), shapes_.end(), tensor,
                                      [](const Shape& shape, std::int64_t id) { return shape.tensor < id; });
  if (found == shapes_.end() || found->tensor != tensor) return std::nullopt;
  return found->bytes;
}

Status RowAppender::append_when_many(sqlite3* db) { return rows_.bytes() < kManyBytes ? Status{} : append(db); }

Status RowAppender::attach(sqlite3* db) {
  if (attached_) return {};
  Status status = sqlite::execute(db, "ATTACH ':memory:' AS rows");
  attached_ = status.has_value();
  return status;
}

Status RowAppender::append(sqlite3* db) {
  if (rows_.empty()) return {};
  if (auto status = attach(db); !status) return status;
  const std::span<std::byte> image = rows_.finish();
  const auto size = static_cast<sqlite3_int64>(image.size());
  const int code = sqlite3_deserialize(db, "rows", reinterpret_cast<unsigned char*>(image.data()), size, size,
                                       SQLITE_DESERIALIZE_READONLY);
  std::swap(rows_, shown_);
  forget();
  if (code != SQLITE_OK) return fail(sqlite::describe(db, code));
  for (const std::size_t table : {kOps, kTensors}) {
    sqlite::Statement& statement = statements_[table];
    if (!statement) {
      const std::string& name = shown_.tables()[table].name;
      auto made = sqlite::Statement::prepare(db, fmt::format("INSERT INTO main.{0} SELECT * FROM rows.{0}", name));
      if (!made) return tl::unexpected(std::move(made.error()));
      statement = std::move(*made);
    }
    if (auto status = statement.run(); !status) return status;
    if (sqlite3_changes64(db) != shown_.rows(table))
      return fail("this SQLite reads rows in another way than its file format; use another build of it");
  }
  return {};
}

/// Attached for longer, it might be locked for writing by a transaction that begins, which it refuses, and be found by
/// whoever reads through the connection later.
Status RowAppender::detach(sqlite3* db) {
  for (sqlite::Statement& statement : statements_) statement = {};
  forget();
  return std::exchange(attached_, false) ? sqlite::execute(db, "DETACH rows") : Status{};
}

void RowAppender::forget() {
  rows_.clear();
  shapes_.clear();
}

}  // namespace nanscope::insert
