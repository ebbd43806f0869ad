#include "core/recording/lent_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "core/recording/element_pool.h"
#include "core/recording/sqlite.h"
#include "core/recording/write_behind.h"
#include "tests/unit/core/recording/sample.h"

/// Elements that take the place of pages which SQLite lays out: what is in the file is what a blob that was bound would
/// have left there, by the stock library's reading.
namespace nanscope {
namespace {

constexpr std::size_t kPage = std::size_t{64} << 10;

/// Sizes around each step of where a blob lies: all in its row, no page that is full, one, many, a last one too short
/// for a mark.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all = {kPage * 3 / 4, kPage - 1, kPage, kPage + 1, 100'000, kPage * 8 + 77, kPage * 16};
  for (std::size_t pages = 1; pages <= 3; ++pages) {
    // 8199 to 65501 bytes lie in the row, the others fill pages.
    for (int around = -40; around <= 40; around += 5) {
      all.push_back(pages * (kPage - 4) + 8199 + static_cast<std::size_t>(around + 40));
      all.push_back(pages * (kPage - 4) - 31 + static_cast<std::size_t>(around + 40));
    }
  }
  return all;
}

std::vector<std::byte> chunk(sqlite3* db, std::int64_t id) {
  auto statement = sqlite::Statement::prepare(db, "SELECT data FROM chunks WHERE id = ?").value();
  EXPECT_TRUE(statement.bind(1, id).step().value());
  const auto blob = statement.blob(0);
  return {blob.begin(), blob.end()};
}

std::string integrity(sqlite3* db) {
  auto statement = sqlite::Statement::prepare(db, "PRAGMA integrity_check").value();
  EXPECT_TRUE(statement.step().value());
  return statement.text(0);
}

class LentTensors : public ::testing::TestWithParam<std::size_t> {};

TEST_P(LentTensors, AreInTheFileAsStockSqliteReadsIt) {
  const TemporaryFolder folder;
  const auto path = folder / "t.nanscope";
  WriterOptions options;
  options.direct_bytes = GetParam();
  options.commit_bytes = std::size_t{2} << 20;
  auto writer = RecordingWriter::create(path, sample::run_info(), options).value();
  StepRow step;
  step.id = 1;
  writer->add(step);
  writer->add(OpRow{1, 1, 0, "x_proj", "gemm", "{}"}, {});
  const auto all = sizes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    TensorRow row;
    row.id = static_cast<std::int64_t>(i) + 1;
    row.op = 1;
    row.role = "out";
    row.format = Format::e4m3;
    row.tokens = 1;
    row.channels = static_cast<std::int64_t>(all[i]);
    writer->add(row, {}, sample::noise(all[i], static_cast<unsigned>(i)));
  }
  ASSERT_TRUE(writer->commit_step());
  const Status finished = writer->finish();
  ASSERT_TRUE(finished) << finished.error().message;
  const auto db = sqlite::open(path, SQLITE_OPEN_READONLY).value();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto found = chunk(db.get(), (static_cast<std::int64_t>(i) + 1) * 65536);
    EXPECT_TRUE(found == sample::noise(all[i], static_cast<unsigned>(i))) << all[i] << " bytes";
  }
  EXPECT_EQ(integrity(db.get()), "ok");
}

INSTANTIATE_TEST_SUITE_P(Writer, LentTensors, ::testing::Values(0, std::size_t{1} << 30));

/// The whole of a tensor of several chunks, a late one and one that comes in parts, whose memory others hold.
TEST(LentPages, MemoryIsHeldUntilItIsWrittenAndThenLetGoOf) {
  const TemporaryFolder folder;
  const auto path = folder / "t.nanscope";
  auto writer = RecordingWriter::create(path, sample::run_info(), {}).value();
  StepRow step;
  step.id = 1;
  step.tokens = 40;
  writer->add(step);
  writer->add(OpRow{1, 1, 0, "x_proj", "gemm", "{}"}, {});
  TensorRow row;
  row.id = row.op = 1;
  row.role = "out";
  row.tokens = 40;
  row.channels = 16384;
  const auto memory = std::make_shared<std::vector<std::byte>>(sample::noise(std::size_t{40} * 16384 * 4, 1));
  const std::vector<Health> tiles = sample::many_of(512, std::size_t{40} * 32, 1);
  const auto held =
      std::make_shared<std::pair<std::shared_ptr<std::vector<std::byte>>, std::vector<Health>>>(memory, tiles);
  writer->add_observed(row, {.tiles = held->second, .elements = *memory, .memory = held});
  row.id = 2;
  writer->add(row);
  row.id = 3;
  writer->add(row);
  writer->add_bytes(2, sample::noise(memory->size(), 2));
  const auto parts = sample::noise(memory->size(), 3);
  for (std::size_t at = 0; at < parts.size(); at += RecordingWriter::kPartBytes) {
    const std::size_t size = std::min(parts.size() - at, RecordingWriter::kPartBytes);
    writer->add_part(
        3, {parts.begin() + static_cast<std::ptrdiff_t>(at), parts.begin() + static_cast<std::ptrdiff_t>(at + size)});
  }
  ASSERT_TRUE(writer->commit_step());
  ASSERT_TRUE(writer->flush());
  const auto db = sqlite::open(path, SQLITE_OPEN_READONLY).value();
  for (const std::int64_t id : {1, 2, 3}) {
    std::vector<std::byte> found;
    for (std::int64_t part = 0; part < 3; ++part) {
      const auto piece = chunk(db.get(), id * 65536 + part);
      found.insert(found.end(), piece.begin(), piece.end());
    }
    EXPECT_TRUE(found == (id == 1 ? *memory : id == 2 ? sample::noise(memory->size(), 2) : parts)) << "tensor " << id;
  }
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(held.use_count(), 1);
}

/// A mark whose elements are gone never gets into a file.
TEST(LentPages, APageIsLentOnce) {
  sqlite::LentPages lent;
  const auto elements = sample::noise(100, 1);
  std::vector<std::byte> page(kPage);
  EXPECT_FALSE(lent.marks(page)) << "of zeros";
  const auto mark = lent.add({elements, {}});
  EXPECT_FALSE(lent.empty());
  EXPECT_FALSE(lent.marks(page));
  std::copy(mark.begin(), mark.end(), page.begin() + sqlite::LentPages::kLinkBytes);
  ASSERT_TRUE(lent.marks(page));
  const auto taken = lent.take(page);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->bytes.data(), elements.data());
  EXPECT_TRUE(lent.empty());
  EXPECT_TRUE(lent.marks(page));
  EXPECT_FALSE(lent.take(page));
  sqlite::LentPages others;
  others.add({elements, {}});
  EXPECT_FALSE(others.marks(page)) << "each has a secret of its own";
}

TEST(LentPages, APageWhoseElementsAreGoneIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder / "t.db";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  {
    const auto behind = sqlite::WriteBehind::make(file, 0).value();
    const auto db = sqlite::open(path, SQLITE_OPEN_READWRITE, behind->name().c_str()).value();
    ASSERT_TRUE(sqlite::execute(db.get(),
                                "PRAGMA page_size = 65536; PRAGMA synchronous = OFF; CREATE TABLE chunks (id "
                                "INTEGER PRIMARY KEY, data BLOB NOT NULL); BEGIN; INSERT INTO chunks VALUES "
                                "(1, zeroblob(65536))"));
    sqlite::BlobWriter blob("chunks", "data");
    ASSERT_TRUE(blob.seek(db.get(), 1));
    const auto mark = behind->lent().add({sample::noise(10, 1), {}});
    ASSERT_TRUE(blob.put(db.get(), mark, sqlite::bytes_in_row(65536, kPage)));
    blob.close();
    behind->lent().forget();
    const Status refused = sqlite::execute(db.get(), "COMMIT");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "a write was refused (disk or quota full, or a file size limit)");
  }
  ::close(file);
}

TEST(ElementPool, MemoryComesBackWhenNobodyHoldsIt) {
  const auto pool = std::make_shared<insert::ElementPool>();
  auto bytes = pool->take(1000);
  const std::byte* const where = bytes.data();
  auto held = pool->lend(std::move(bytes));
  EXPECT_NE(pool->take(1000).data(), where) << "it is held";
  held.reset();
  EXPECT_EQ(pool->take(900).data(), where);
}

}  // namespace
}  // namespace nanscope
