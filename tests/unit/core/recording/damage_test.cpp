#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "tests/unit/core/recording/sample.h"

/// Recordings that are missing, foreign, newer, truncated, damaged or unfinished: one line each.
namespace nanscope {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<char> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void sql(const fs::path& path, const std::string& statement) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(db, statement.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
  sqlite3_free(message);
  sqlite3_close(db);
}

void expect_one_line(const Error& error, const fs::path& path) {
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  EXPECT_EQ(error.message.rfind(path.string(), 0), 0U) << error.message;
}

/// Reads whatever can be read, and returns the first error.
Status read_all(const fs::path& path) {
  auto recording = Recording::open(path);
  if (!recording) return tl::unexpected(recording.error());
  Status first;
  const auto note = [&](const auto& result) {
    if (!result && first) first = tl::unexpected(result.error());
  };
  note(recording->state());
  note(recording->counts());
  note(recording->requests());
  note(recording->steps());
  note(recording->ops());
  note(recording->first_bad_op());
  note(recording->weights());
  note(recording->scales());
  note(recording->kv_history());
  note(recording->tokens(0));
  note(recording->kernels());
  note(recording->events());
  note(recording->notes());
  const auto tensors = recording->tensors();
  note(tensors);
  for (const TensorRow& tensor : tensors.value_or(std::vector<TensorRow>{})) {
    note(recording->inputs_of(tensor.op));
    note(recording->tensors_of(tensor.op));
    note(recording->token_health(tensor.id));
    note(recording->tiles(tensor.id, 0));
    note(recording->tensor_bytes(tensor.id));
  }
  note(recording->check());
  return first;
}

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    auto writer = RecordingWriter::create(path_, sample::run_info()).value();
    for (int step = 1; step <= 3; ++step) sample::add_step(*writer, step, 0, step - 1, 4, 5, 600, true, 7);
    ASSERT_TRUE(writer->finish(12));
  }
  std::string open_error(const fs::path& path) const {
    const auto recording = Recording::open(path);
    if (recording) return "it opened";
    expect_one_line(recording.error(), path);
    return recording.error().message;
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_ / "d.nanscope";
};

TEST_F(Damage, WhatIsNoRecordingIsSaidInOneLine) {
  EXPECT_THAT(open_error(folder_ / "absent"), HasSubstr("no such file"));
  EXPECT_THAT(open_error(folder_.path()), HasSubstr("a folder"));
  write_file(folder_ / "empty", {});
  EXPECT_THAT(open_error(folder_ / "empty"), HasSubstr("0 bytes"));
  write_file(folder_ / "text", {'h', 'i'});
  EXPECT_THAT(open_error(folder_ / "text"), HasSubstr("not a recording"));
  write_file(folder_ / "large", std::vector<char>(100'000, 'x'));
  EXPECT_THAT(open_error(folder_ / "large"), HasSubstr("not a recording"));
  sql(folder_ / "other", "CREATE TABLE t (x)");
  EXPECT_THAT(open_error(folder_ / "other"), HasSubstr("not a nanscope recording"));
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(open_error(folder_ / "fifo"), HasSubstr("not a regular file"));
}

TEST_F(Damage, NewerSchemaNamesBothVersions) {
  sql(path_, "PRAGMA user_version = 7");
  EXPECT_THAT(open_error(path_), HasSubstr("schema 7, this one reads up to 4"));
}

TEST_F(Damage, AlteredSchemaIsRefused) {
  sql(path_, "DROP TABLE kernels");
  EXPECT_THAT(open_error(path_), HasSubstr("'kernels' is missing"));
  sql(path_, "CREATE VIEW kernels AS SELECT 1");
  EXPECT_THAT(open_error(path_), HasSubstr("'kernels' is missing"));
  sql(path_, "DROP VIEW kernels; CREATE TABLE kernels (id)");
  EXPECT_THAT(open_error(path_), HasSubstr("is not defined as schema 4"));
}

TEST_F(Damage, RowsThatContradictThemselvesAreNotBelieved) {
  const auto with = [&](const std::string& statement) {
    const fs::path copy = folder_ / "copy";
    fs::copy_file(path_, copy, fs::copy_options::overwrite_existing);
    sql(copy, statement);
    const auto status = read_all(copy);
    EXPECT_FALSE(status) << statement;
    if (!status) expect_one_line(status.error(), copy);
    return status ? std::string{} : status.error().message;
  };
  EXPECT_THAT(with("UPDATE tensors SET tokens = 1000000000000 WHERE id = 3"), HasSubstr("shape"));
  EXPECT_THAT(with("UPDATE tensors SET tokens = -1 WHERE id = 3"), HasSubstr("shape"));
  EXPECT_THAT(with("UPDATE tensors SET tokens = 1000000000, channels = 100000 WHERE id = 3"), HasSubstr("instead of"));
  EXPECT_THAT(with("UPDATE tensors SET format = 'f17' WHERE id = 3"), HasSubstr("'f17' is no format"));
  EXPECT_THAT(with("UPDATE detail SET token_rows = zeroblob(111) WHERE tensor = 3"),
              HasSubstr("111 bytes instead of 560"));
  EXPECT_THAT(with("UPDATE detail SET tiles = zeroblob(111) WHERE tensor = 3"), HasSubstr("111 bytes of tiles"));
  EXPECT_THAT(with("UPDATE detail SET levels = 4000000000 WHERE tensor = 3"), HasSubstr("tiles"));
  EXPECT_THAT(with("UPDATE chunks SET data = zeroblob(5) WHERE id = 3 << 16"), HasSubstr("5 bytes instead of 12000"));
  EXPECT_THAT(with("UPDATE steps SET kind = 'sideways'"), HasSubstr("sideways"));
  EXPECT_THAT(with("UPDATE steps SET batch = 0 WHERE id = 2"), HasSubstr("5 rows in a batch of 0"));
  EXPECT_THAT(with("UPDATE steps SET batch = 3 WHERE id = 2"), HasSubstr("5 rows in a batch of 3"));
  EXPECT_THAT(with("UPDATE steps SET batch = 10 WHERE id = 2"), HasSubstr("5 rows in a batch of 10"));
  EXPECT_THAT(with("UPDATE tensors SET heads = 1000000 WHERE id = 3"), HasSubstr("in 1000000 heads"));
  EXPECT_THAT(with("UPDATE steps SET tokens = -4 WHERE id = 2"), HasSubstr("-4 rows"));
  EXPECT_THAT(with("UPDATE steps SET placed = 2"), HasSubstr("2 where 0 or 1"));
  EXPECT_THAT(with("UPDATE spans SET row_count = 6 WHERE step = 2"), HasSubstr("step 2 of 5 rows has a sequence of 6"));
  EXPECT_THAT(with("UPDATE spans SET first_row = 5 WHERE step = 2"), HasSubstr("5 rows from row 5"));
  EXPECT_THAT(with("UPDATE spans SET first_row = -1 WHERE step = 2"), HasSubstr("from row -1"));
  EXPECT_THAT(with("UPDATE spans SET first_row = 1 << 62, row_count = 1 << 62"), HasSubstr("has a sequence"));
  EXPECT_THAT(with("UPDATE spans SET context = -1 WHERE step = 2"), HasSubstr("has a sequence"));
  EXPECT_THAT(with("INSERT INTO spans SELECT 99, 0, 0, 0, 0, 1, 0, 1"), HasSubstr("a sequence without its step"));
  EXPECT_THAT(with("UPDATE tensors SET axis = 'columns' WHERE id = 3"), HasSubstr("unexpected word 'columns'"));
  EXPECT_THAT(with("UPDATE tensors SET sequence = -2 WHERE id = 3"), HasSubstr("tensor 3 is of sequence -2"));
  EXPECT_THAT(with("UPDATE tensors SET guessed = 2 WHERE id = 3"), HasSubstr("2 where 0 or 1"));
  EXPECT_THAT(with("UPDATE tensors SET known = 0 WHERE id = 3"), HasSubstr("of 12 tensors"));
  EXPECT_THAT(with("UPDATE ops SET by_name = -1 WHERE id = 3"), HasSubstr("-1 where 0 or 1"));
  EXPECT_THAT(with("UPDATE ops SET step = 99 WHERE id = 3"), HasSubstr("op 3 of step 99 lies among those of step 1"));
  EXPECT_THAT(with("UPDATE ops SET inputs = '[[1,2]]'"), HasSubstr("inputs of op"));
  EXPECT_THAT(with("UPDATE ops SET inputs = '['"), HasSubstr("inputs of op"));
  EXPECT_THAT(with("UPDATE progress SET ops = 13"), HasSubstr("12 of 13 ops"));
  EXPECT_THAT(with("UPDATE progress SET state = 'dunno'"), HasSubstr("state"));
  EXPECT_THAT(with("DELETE FROM run WHERE key = 'config'"), HasSubstr("'config' is missing"));
  EXPECT_THAT(with("DELETE FROM progress"), HasSubstr("progress"));
  EXPECT_THAT(with("UPDATE run SET value = '7' WHERE key = 'tile_channels'"), HasSubstr("'7' channels wide"));
}

TEST_F(Damage, TruncatedAnywhereGivesOneLine) {
  const auto whole = read_file(path_);
  const fs::path cut = folder_ / "cut";
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t size = i < 20 ? i * 7 : whole.size() * (i - 19) / 45 - 1;
    write_file(cut, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
    const auto recording = Recording::open(cut);
    ASSERT_FALSE(recording) << size;
    expect_one_line(recording.error(), cut);
    if (size > 100) {
      EXPECT_THAT(recording.error().message, HasSubstr(fmt::format("truncated: {} of", size)));
    }
  }
}

/// A page of a table that holds nothing but `cells` references to another (sqlite.org/fileformat2.html, 1.6).
std::string page_of_references(std::size_t page_bytes, std::uint32_t to, int cells) {
  std::string page(page_bytes, '\0');
  const auto put = [&](std::size_t at, std::uint32_t value, int width) {
    for (int i = 0; i < width; ++i)
      page[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * (width - 1 - i)));
  };
  put(0, 5, 1);
  put(3, static_cast<std::uint32_t>(cells), 2);
  put(8, to, 4);
  std::size_t end = page_bytes;
  for (int i = 0; i < cells; ++i) {
    end -= 5;
    put(end, to, 4);
    page[end + 4] = static_cast<char>(i % 100);
    put(12 + 2 * static_cast<std::size_t>(i), static_cast<std::uint32_t>(end), 2);
  }
  put(5, static_cast<std::uint32_t>(end), 2);
  return page;
}

/// Makes pages of a table refer to one page many times over, in levels: 500^4 times its rows in a few pages.
void multiply(const fs::path& path, const std::string& table) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const auto number = [&](const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr);
    sqlite3_step(statement);
    const auto value = static_cast<std::size_t>(sqlite3_column_int64(statement, 0));
    sqlite3_finalize(statement);
    return value;
  };
  const std::size_t size = number("PRAGMA page_size");
  const std::size_t root = number("SELECT rootpage FROM sqlite_schema WHERE name = '" + table + "'");
  const std::size_t pages = number("PRAGMA page_count");
  sqlite3_close(db);
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  ASSERT_EQ(bytes.size(), pages * size);
  const std::string leaf = bytes.substr((root - 1) * size, size);
  ASSERT_EQ(leaf[0], 13) << "the table is one leaf";
  // The root, then three more pages of references, then the leaf that it was.
  for (std::size_t level = 0; level < 4; ++level) {
    const std::string page = page_of_references(size, static_cast<std::uint32_t>(pages + level + 1), 500);
    level == 0 ? bytes.replace((root - 1) * size, size, page) : bytes += page;
  }
  bytes += leaf;
  const auto count = static_cast<std::uint32_t>(bytes.size() / size);
  for (std::size_t i = 0; i < 4; ++i) bytes[28 + i] = static_cast<char>(count >> (8 * (3 - i)));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_F(Damage, PagesThatOccurTwiceGiveNoRowsWithoutEnd) {
  multiply(path_, "steps");
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording) << recording.error().message;
  const auto steps = recording->steps();
  ASSERT_FALSE(steps);
  expect_one_line(steps.error(), path_);
  EXPECT_THAT(steps.error().message, HasSubstr("more rows than fit in the file"));
}

/// None of the rows is asked for: SQLite passes over them by itself.
TEST_F(Damage, PagesThatOccurTwiceAreNotPassedOverWithoutEnd) {
  multiply(path_, "ops");
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording) << recording.error().message;
  OpFilter filter;
  filter.name = "absent";
  const auto ops = recording->ops(filter);
  ASSERT_FALSE(ops);
  EXPECT_THAT(ops.error().message, HasSubstr("more rows than fit in the file"));
}

TEST_F(Damage, FlippedBitsNeverCrash) {
  const auto whole = read_file(path_);
  const fs::path flipped = folder_ / "flipped";
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 250; ++i) {
    auto bytes = whole;
    // Half of them into what is not zero: pages are mostly empty here.
    for (int flips = 0; flips < 4;) {
      const std::size_t at = random() % bytes.size();
      if (i % 2 == 0 && bytes[at] == 0 && random() % 64 != 0) continue;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      ++flips;
    }
    write_file(flipped, bytes);
    const auto status = read_all(flipped);
    if (status) continue;
    ++refused;
    expect_one_line(status.error(), flipped);
  }
  EXPECT_GT(refused, 20);
}

/// Runs `work` in a child that then dies without any clean-up, as kill -9 would have it.
template <class Work>
void die_after(Work work) {
  const pid_t pid = fork();
  if (pid == 0) {
    work();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(Damage, KilledWriterLeavesItsCommittedSteps) {
  const fs::path path = folder_ / "killed";
  die_after([&] {
    auto writer = RecordingWriter::create(path, sample::run_info()).value();
    sample::add_step(*writer, 1, 0, 0, 4, 5, 600, true);
    if (!writer->flush()) _exit(1);
    sample::add_step(*writer, 2, 0, 1, 4, 5, 600, true);
    if (!writer->flush()) _exit(1);
  });
  const auto recording = Recording::open(path);
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->state().value(), RunState::interrupted);
  EXPECT_EQ(recording->counts()->ops, 8);
  EXPECT_TRUE(recording->check());
}

/// A recording whose last transaction was written half, with its journal beside it.
void leave_hot_journal(const fs::path& path) {
  die_after([&] {
    sqlite3* db = nullptr;
    sqlite3_open(path.c_str(), &db);
    // A cache of one page spills into the file long before the commit that never comes.
    sqlite3_exec(db,
                 "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF; PRAGMA cache_size = 1; BEGIN; "
                 "UPDATE ops SET name = 'half-written'; UPDATE tensors SET role = 'half-written'; "
                 "UPDATE chunks SET data = zeroblob(12000); DELETE FROM detail",
                 nullptr, nullptr, nullptr);
  });
  ASSERT_GT(fs::file_size(path.string() + "-journal"), 512U);
}

TEST_F(Damage, HalfWrittenTransactionIsUndone) {
  leave_hot_journal(path_);
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->op(1)->name, "attn_norm");
  EXPECT_EQ(recording->tensor_bytes(1).value().value(), sample::noise(12000, 1));
  EXPECT_TRUE(recording->check());
}

TEST_F(Damage, HalfWrittenTransactionInAReadOnlyFolderIsExplained) {
  leave_hot_journal(path_);
  fs::permissions(path_, fs::perms(0444));
  fs::permissions(folder_.path(), fs::perms(0555));
  const pid_t pid = fork();
  if (pid == 0) {
    constexpr uid_t kNobody = 65534;  // root may write anywhere
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(2);
    _exit(open_error(path_).find("copy it together with d.nanscope-journal") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Damage, JournalThatNamesAnotherFileIsRefused) {
  leave_hot_journal(path_);
  const fs::path victim = folder_ / "victim";
  write_file(victim, {'x'});
  // sqlite.org/fileformat2.html, 3: page 0, the name, its length, its checksum, the magic.
  const std::string name = victim.string();
  std::ofstream journal(path_.string() + "-journal", std::ios::binary | std::ios::app);
  const auto word = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) journal.put(static_cast<char>(value >> shift));
  };
  std::uint32_t sum = 0;
  for (const char c : name) sum += static_cast<unsigned char>(c);
  word(0x4001);
  journal << name;
  word(static_cast<std::uint32_t>(name.size()));
  word(sum);
  for (const int c : {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7}) journal.put(static_cast<char>(c));
  journal.close();
  const auto recording = Recording::open(path_);
  ASSERT_FALSE(recording);
  EXPECT_THAT(recording.error().message, HasSubstr("never names other files"));
  EXPECT_TRUE(fs::exists(victim));
}

}  // namespace
}  // namespace nanscope
