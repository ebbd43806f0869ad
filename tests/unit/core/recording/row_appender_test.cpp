#include "core/recording/row_appender.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/recording/insert.h"
#include "core/recording/sqlite.h"
#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

constexpr std::int64_t kTensors = 5000;

std::vector<std::byte> bytes_of(std::int64_t tensor) { return sample::noise(16, static_cast<unsigned>(tensor)); }

/// An op of one tensor of 4 elements; each third is bad, and some ops have attributes of pages.
void add_op(RecordingWriter& writer, std::int64_t id) {
  OpRow op;
  op.id = id;
  op.step = 1;
  op.name = "attn_norm";
  op.kind = "layer_norm";
  op.attributes = id % 1000 == 0 ? "{\"note\":\"" + std::string(static_cast<std::size_t>(30 * id), 'x') + "\"}" : "{}";
  writer.add(op, {});
  TensorRow tensor;
  tensor.id = tensor.op = id;
  tensor.role = "out";
  tensor.tokens = 1;
  tensor.channels = 4;
  tensor.hash = sample::hash_of(bytes_of(id));
  tensor.health = sample::health_of(4, 0, id % 3 == 0 ? 1 : 0);
  writer.add(tensor);
}

/// What was appended while the step went on, and what waited for its end.
TEST(RowAppender, RowsOfManyImagesAreThoseThatWereAdded) {
  const TemporaryFolder folder;
  const auto path = folder / "r.nanscope";
  auto writer = RecordingWriter::create(path, sample::run_info(), {}).value();
  StepRow step;
  step.id = 1;
  step.tokens = 1;
  writer->add(step);
  for (std::int64_t id = 1; id <= kTensors; ++id) {
    add_op(*writer, id);
    if (id % 100 != 0) continue;
    for (const std::int64_t late : {id, id - 99}) {
      if (late % 10 == 0 || late == 1) writer->add_bytes(late, bytes_of(late));
    }
  }
  writer->add_bytes(2, bytes_of(2));
  ASSERT_TRUE(writer->commit_step());
  const Status finished = writer->finish(kTensors);
  ASSERT_TRUE(finished) << finished.error().message;

  const auto recording = Recording::open(path).value();
  const auto tensors = recording.tensors().value();
  ASSERT_EQ(tensors.size(), static_cast<std::size_t>(kTensors));
  for (const TensorRow& tensor : tensors) {
    ASSERT_EQ(tensor.hash, sample::hash_of(bytes_of(tensor.id)));
    ASSERT_TRUE(sample::same(tensor.health, sample::health_of(4, 0, tensor.id % 3 == 0 ? 1 : 0))) << tensor.id;
  }
  EXPECT_EQ(recording.op(5000)->attributes.size(), 150'000U + 11);
  EXPECT_TRUE(recording.tensor_bytes(1).value() == bytes_of(1));
  EXPECT_TRUE(recording.tensor_bytes(2).value() == bytes_of(2));
  EXPECT_TRUE(recording.tensor_bytes(5000).value() == bytes_of(5000));

  const auto db = sqlite::open(path, SQLITE_OPEN_READONLY).value();
  const auto text = [&db](std::string_view sql) {
    auto statement = sqlite::Statement::prepare(db.get(), sql).value();
    EXPECT_TRUE(statement.step().value());
    return statement.text(0);
  };
  EXPECT_EQ(text("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(text("SELECT count(*) FROM tensors INDEXED BY tensors_bad WHERE bad > 0"), "1666");
}

/// What was appended and not committed is undone, and what was not appended is forgotten.
TEST(RowAppender, NoRowOfAStepThatDidNotEndIsKept) {
  const TemporaryFolder folder;
  const auto path = folder / "r.nanscope";
  {
    auto writer = RecordingWriter::create(path, sample::run_info(), {}).value();
    sample::add_step(*writer, 1, 0, 0, 3, 2, 8, false);
    StepRow step;
    step.id = 2;
    writer->add(step);
    for (std::int64_t id = 10; id < 4000; ++id) {
      OpRow op;
      op.id = id;
      op.step = 2;
      writer->add(op, {});
    }
  }
  const auto recording = Recording::open(path).value();
  EXPECT_EQ(recording.ops()->size(), 3U);
  EXPECT_EQ(recording.counts()->ops, 3);
}

std::int64_t databases(sqlite3* db) {
  return sqlite::query_integer(db, "SELECT count(*) FROM pragma_database_list").value();
}

/// The connection is read afterwards, when the images are gone.
TEST(RowAppender, LeavesNoOtherDatabaseBehind) {
  auto inserter = insert::Inserter::create(nullptr, {}).value();
  ASSERT_TRUE(inserter.begin(sample::run_info()));
  const auto add_ops = [&](std::int64_t from) {
    for (std::int64_t id = from; id < from + 4000; ++id) {
      insert::AddOp op;
      op.row.id = id;
      ASSERT_TRUE(inserter.apply(op));
    }
  };
  add_ops(1);
  ASSERT_TRUE(inserter.commit());
  add_ops(5000);
  ASSERT_TRUE(inserter.complete());
  const auto db = inserter.release();
  EXPECT_EQ(databases(db.get()), 1);
  EXPECT_EQ(sqlite::query_integer(db.get(), "SELECT count(*) FROM ops").value(), 8000);
}

TEST(RowAppender, AFailureLeavesNoneEither) {
  const auto db = sqlite::open({}, SQLITE_OPEN_READWRITE).value();
  insert::RowAppender rows;
  ASSERT_TRUE(rows.append(db.get())) << "nothing";
  ASSERT_FALSE(rows.add(db.get(), OpRow{}, std::string(std::size_t{1} << 20, 'x'), 1)) << "there is no table";
  ASSERT_TRUE(rows.detach(db.get()));
  ASSERT_TRUE(rows.detach(db.get())) << "once more";
  EXPECT_EQ(databases(db.get()), 1);
  ASSERT_TRUE(rows.append(db.get())) << "what was not appended is forgotten";
}

/// Nothing is there to be detached then, and what follows is not held up by that.
TEST(RowAppender, WhatCannotBeAttachedIsNotDetached) {
  const auto db = sqlite::open({}, SQLITE_OPEN_READWRITE).value();
  sqlite3_limit(db.get(), SQLITE_LIMIT_ATTACHED, 0);
  insert::RowAppender rows;
  const Status added = rows.add(db.get(), OpRow{}, std::string(std::size_t{1} << 20, 'x'), 1);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("too many attached databases"), std::string::npos) << added.error().message;
  const Status detached = rows.detach(db.get());
  EXPECT_TRUE(detached) << detached.error().message;
}

}  // namespace
}  // namespace nanscope
