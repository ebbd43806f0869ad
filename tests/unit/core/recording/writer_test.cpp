#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <thread>

#include "core/tensor/content_hash.h"
#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

TEST(Writer, RefusesToOverwrite) {
  const TemporaryFolder folder;
  const auto path = folder / "w.nanscope";
  std::ofstream(path) << "precious";
  const auto refused = RecordingWriter::create(path, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("exists already"));
  EXPECT_EQ(std::filesystem::file_size(path), 8U);
  WriterOptions options;
  options.output.replace = true;
  EXPECT_TRUE(RecordingWriter::create(path, {}, options));
}

TEST(Writer, SaysWhyAFileCannotBeCreated) {
  const TemporaryFolder folder;
  const auto refused = RecordingWriter::create(folder / "no/such/folder/w.nanscope", {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("there is no folder"));
  EXPECT_FALSE(RecordingWriter::create({}, {}));
}

TEST(Writer, AJournalOfSomebodyElsesIsNeitherPlayedNorRemoved) {
  const TemporaryFolder folder;
  const std::string content(4096, 'j');
  for (const char* suffix : {"-journal", "-wal"}) {
    const auto journal = folder / (std::string("w.nanscope") + suffix);
    std::ofstream(journal) << content;
    const auto refused = RecordingWriter::create(folder / "w.nanscope", sample::run_info());
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("would be taken for a part of w.nanscope: move it away"));
    EXPECT_FALSE(fs::exists(folder / "w.nanscope"));
    EXPECT_EQ(fs::file_size(journal), content.size());
    fs::remove(journal);
  }
  // Of a first transaction: magic, records, nonce, pages of the database before.
  const std::string first("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\xff\xff\xff\xff\x01\x02\x03\x04\0\0\0\0\0\0\x02\0", 24);
  std::ofstream(folder / "w.nanscope-journal", std::ios::binary) << first;
  {
    auto writer = RecordingWriter::create(folder / "w.nanscope", sample::run_info());
    ASSERT_TRUE(writer && (*writer)->finish());
  }
  EXPECT_TRUE(Recording::open(folder / "w.nanscope")->check());
  fs::remove(folder / "w.nanscope");
  std::ofstream(folder / "w.nanscope-journal") << "";
  EXPECT_TRUE(RecordingWriter::create(folder / "w.nanscope", sample::run_info())) << "what a killed writer leaves";
}

TEST(Writer, WhatIsReplacedStaysUntilTheNewOneIsComplete) {
  const TemporaryFolder folder;
  const auto path = folder / "w.nanscope";
  std::ofstream(path) << "mine";
  WriterOptions options;
  options.output.replace = true;
  for (const bool finished : {false, true}) {
    auto writer = RecordingWriter::create(path, sample::run_info(), options).value();
    sample::add_step(*writer, 1, 0, 0, 2, 3, 8, true);
    ASSERT_TRUE(writer->flush());
    EXPECT_EQ(fs::file_size(path), 4U);
    if (finished) {
      ASSERT_TRUE(writer->finish());
    }
    writer.reset();
    EXPECT_EQ(fs::file_size(path) == 4U, !finished);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1)
        << "nothing is left beside";
  }
  EXPECT_TRUE(Recording::open(path)->check());
}

TEST(Writer, NobodyReplacesWhatIsBeingWritten) {
  const TemporaryFolder folder;
  const auto path = folder / "w.nanscope";
  auto writer = RecordingWriter::create(path, sample::run_info()).value();
  WriterOptions options;
  options.output.replace = true;
  const auto refused = RecordingWriter::create(path, sample::run_info(), options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is being written by another process"));
  ASSERT_TRUE(writer->finish());
  EXPECT_TRUE(RecordingWriter::create(path, sample::run_info(), options));
}

TEST(Writer, IsSeenAliveAndLeavesAnInterruptedRunWhenItGoesAway) {
  const TemporaryFolder folder;
  const auto path = folder / "w.nanscope";
  auto writer = RecordingWriter::create(path, sample::run_info()).value();
  sample::add_step(*writer, 1, 0, 0, 2, 3, 8, true);
  ASSERT_TRUE(writer->flush());
  EXPECT_EQ(writer->committed_steps(), 1);
  const auto recording = Recording::open(path);
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->state().value(), RunState::recording);
  EXPECT_EQ(recording->counts()->ops, 2);

  sample::add_step(*writer, 2, 0, 1, 2, 3, 8, true);
  ASSERT_TRUE(writer->flush());
  EXPECT_EQ(recording->counts()->ops, 4) << "an open reader sees what was committed meanwhile";

  sample::add_step(*writer, 3, 0, 2, 2, 3, 8, true);
  StepRow unfinished;
  unfinished.id = 4;
  writer->add(unfinished);
  writer.reset();
  EXPECT_EQ(recording->state().value(), RunState::interrupted);
  EXPECT_EQ(recording->steps()->size(), 3U) << "whole steps stay, the unfinished one does not";
}

TEST(Writer, UnfinishedLargeStepIsForgotten) {
  const TemporaryFolder folder;
  const auto path = folder / "w.nanscope";
  auto writer = RecordingWriter::create(path, sample::run_info()).value();
  sample::add_step(*writer, 1, 0, 0, 2, 3, 8, true);
  StepRow step;
  step.id = 2;
  writer->add(step);
  for (int i = 0; i < 20; ++i) {
    OpRow op;
    op.id = 3 + i;
    op.step = 2;
    writer->add(op, {});
    TensorRow tensor;
    tensor.id = tensor.op = op.id;
    tensor.tokens = 1024;
    tensor.channels = 256;
    writer->add(tensor, {}, std::vector<std::byte>(1 << 20));
  }
  writer.reset();
  const auto recording = Recording::open(path);
  EXPECT_EQ(recording->steps()->size(), 1U);
  EXPECT_EQ(recording->tensors()->size(), 2U);
  EXPECT_TRUE(recording->check());
}

TEST(Writer, ExpectedOpsAreKnownBeforeTheEnd) {
  const TemporaryFolder folder;
  auto writer = RecordingWriter::create(folder / "w.nanscope", sample::run_info()).value();
  writer->set_expected_ops(100);
  sample::add_step(*writer, 1, 0, 0, 2, 3, 8, false);
  writer.reset();
  const auto counts = Recording::open(folder / "w.nanscope")->counts().value();
  EXPECT_EQ(counts.ops, 2);
  EXPECT_EQ(counts.expected_ops, 100);
}

void expect_refused(const std::string& message, const std::function<void(RecordingWriter&)>& add) {
  auto writer = RecordingWriter::create_in_memory({}).value();
  StepRow step;
  step.id = 5;
  writer->add(step);
  OpRow op;
  op.id = 5;
  op.step = 5;
  writer->add(op, {});
  TensorRow tensor;
  tensor.id = tensor.op = 5;
  tensor.tokens = 2;
  tensor.channels = 600;
  writer->add(tensor);
  add(*writer);
  const auto status = writer->finish();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(message));
}

TEST(Writer, RowsThatContradictThemselvesAreLatchedErrors) {
  TensorRow tensor;
  tensor.id = 6;
  tensor.op = 5;
  tensor.tokens = 2;
  tensor.channels = 600;
  expect_refused("3 token rows", [&](auto& w) { w.add(tensor, {sample::many(3, 0), {}}); });
  expect_refused("3 tiles", [&](auto& w) { w.add(tensor, {sample::many(2, 0), sample::many(3, 0)}); });
  expect_refused("need tiles", [&](auto& w) { w.add(tensor, {sample::many(2, 0), {}}); });
  expect_refused("7 bytes for 2 x 600", [&](auto& w) { w.add(tensor, {}, sample::noise(7, 0)); });
  expect_refused("never added", [&](auto& w) { w.add_bytes(9, sample::noise(7, 0)); });
  expect_refused("its shape needs 4800", [&](auto& w) { w.add_bytes(5, sample::noise(7, 0)); });
  expect_refused("4096 bytes where 4800 are left", [&](auto& w) { w.add_part(5, sample::noise(4096, 0)); });
  expect_refused("a sequence of 2 rows from row 3 in 4 rows", [&](auto& w) {
    StepRow step;
    step.id = 9;
    step.tokens = 4;
    step.spans = {{0, 0, 3, 2, 0, 2}};
    w.add(step);
  });
  expect_refused("logical order", [&](auto& w) {
    tensor.id = 4;
    w.add(tensor);
  });
  expect_refused("op 6 of step 4 added after step 5", [&](auto& w) {
    OpRow op;
    op.id = 6;
    op.step = 4;
    w.add(op, {});
  });
}

TEST(Writer, BytesMayFollowTheirTensor) {
  auto writer = RecordingWriter::create_in_memory({}).value();
  sample::add_step(*writer, 1, 0, 0, 2, 3, 8, false);
  sample::add_step(*writer, 2, 0, 1, 2, 3, 8, false);
  OpRow op;
  op.id = 5;
  op.step = 2;
  writer->add(op, {});
  TensorRow tensor;
  tensor.id = 5;
  tensor.op = 5;
  tensor.tokens = 3;
  tensor.channels = 8;
  tensor.hash = sample::hash_of(sample::noise(96, 1));
  writer->add(tensor);
  writer->add_bytes(5, sample::noise(96, 1));
  ASSERT_TRUE(writer->commit_step());
  const auto recording = writer->finish_in_memory();
  EXPECT_TRUE(recording->tensor(5)->stored);
  EXPECT_FALSE(recording->tensor(2)->stored);
  EXPECT_EQ(recording->tensor_bytes(5).value().value(), sample::noise(96, 1));
}

TEST(Writer, LargeTensorsAreCutIntoChunks) {
  const TemporaryFolder folder;
  auto writer = RecordingWriter::create(folder / "w.nanscope", {}).value();
  const auto bytes = sample::noise(1000 * 700 * 4, 5);
  StepRow step;
  step.id = 1;
  writer->add(step);
  OpRow op;
  op.id = op.step = 1;
  writer->add(op, {});
  TensorRow tensor;
  tensor.id = tensor.op = 1;
  tensor.tokens = 1000;
  tensor.channels = 700;
  const auto detail = sample::many(static_cast<std::size_t>(level_shape(1000, 700, 0).tiles()), 0);
  tensor.hash = sample::hash_of(bytes);
  writer->add(tensor, {sample::many(1000, 0), detail}, bytes);
  ASSERT_TRUE(writer->finish());
  const auto recording = Recording::open(folder / "w.nanscope").value();
  EXPECT_EQ(recording.tensor_bytes(1).value().value(), bytes);
  const std::size_t edge = (1 << 20) - 3;
  EXPECT_EQ(recording.tensor_bytes(1, edge, 7).value().value(),
            (std::vector<std::byte>{bytes.begin() + edge, bytes.begin() + edge + 7}));
  // The upper levels of a tensor this large are in the file; they are what merging gives.
  sqlite3* db = nullptr;
  sqlite3_open((folder / "w.nanscope").c_str(), &db);
  int levels = 0;
  sqlite3_exec(
      db, "SELECT levels FROM detail",
      [](void* into, int, char** row, char**) {
        *static_cast<int*>(into) = std::atoi(row[0]);
        return 0;
      },
      &levels, nullptr);
  sqlite3_close(db);
  EXPECT_EQ(levels, 6);
  const auto shape = level_shape(1000, 700, 0);
  EXPECT_TRUE(sample::same(recording.tiles(1, 1)->tiles, merge_level(detail, shape)));
  EXPECT_EQ(recording.tiles(1, 5)->tiles.size(), 1U);
  EXPECT_TRUE(sample::same(recording.tiles(1, 0)->tiles, detail));
}

/// A tensor of 2 MiB and 4 bytes, in three parts.
void add_in_parts(RecordingWriter& writer, const std::vector<std::byte>& bytes, int parts) {
  StepRow step;
  step.id = 1;
  writer.add(step);
  OpRow op;
  op.id = op.step = 1;
  writer.add(op, {});
  TensorRow tensor;
  tensor.id = tensor.op = 1;
  tensor.tokens = 1;
  tensor.channels = static_cast<std::int64_t>(bytes.size() / 4);
  tensor.hash = sample::hash_of(bytes);
  writer.add(tensor);
  for (int part = 0; part < parts; ++part) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(part) * (1 << 20);
    writer.add_part(1, {begin, bytes.end() - begin > (1 << 20) ? begin + (1 << 20) : bytes.end()});
  }
}

TEST(Writer, LargeTensorsMayComeInParts) {
  const auto bytes = sample::noise((2 << 20) + 4, 5);
  auto writer = RecordingWriter::create_in_memory({}).value();
  add_in_parts(*writer, bytes, 3);
  const auto recording = writer->finish_in_memory();
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->tensor_bytes(1).value().value(), bytes);
  EXPECT_EQ(recording->counts()->stored_tensors, 1);
}

TEST(Writer, HalfATensorIsNotARecording) {
  auto writer = RecordingWriter::create_in_memory({}).value();
  add_in_parts(*writer, sample::noise((2 << 20) + 4, 5), 2);
  const auto recording = writer->finish_in_memory();
  ASSERT_FALSE(recording);
  EXPECT_THAT(recording.error().message, HasSubstr("2097152 of 2097156 bytes"));
}

TEST(Writer, TilesOfManyNarrowTokensAreStoredFromLevelOne) {
  auto writer = RecordingWriter::create_in_memory({}).value();
  sample::add_step(*writer, 1, 0, 0, 1, 2000, 64, false);
  const auto recording = writer->finish_in_memory().value();
  auto level = sample::many_of(64, 2000, 1);
  EXPECT_TRUE(sample::same(recording.token_health(1).value(), level));
  for (int i = 0; i < pyramid_levels(2000, 64); ++i) {
    const auto tiles = recording.tiles(1, i).value();
    EXPECT_TRUE(sample::same(tiles.tiles, level)) << i;
    level = merge_level(level, tiles.shape);
  }
}

/// A step of one op with one tensor of f32; all have the same id.
void add_step_of_one(RecordingWriter& writer, std::int64_t id, std::int64_t tokens, std::int64_t channels,
                     std::vector<std::byte> bytes) {
  StepRow step;
  step.id = id;
  writer.add(step);
  OpRow op;
  op.id = op.step = id;
  writer.add(op, {});
  TensorRow tensor;
  tensor.id = tensor.op = id;
  tensor.tokens = tokens;
  tensor.channels = channels;
  tensor.health.count = static_cast<std::uint64_t>(tokens * channels);
  tensor.hash = sample::hash_of(bytes);
  writer.add(tensor, {}, std::move(bytes));
}

TEST(Writer, ErrorsOfAFullDiskAreLatched) {
  const TemporaryFolder folder;
  WriterOptions options;
  options.max_pages = 60;
  options.commit_interval = std::chrono::milliseconds(0);
  auto writer = RecordingWriter::create(folder / "w.nanscope", sample::run_info(), options).value();
  Status status;
  for (int step = 1; step <= 200 && status; ++step) {
    add_step_of_one(*writer, step, 100, 1000, std::vector<std::byte>(400'000));
    std::ignore = writer->commit_step();
    status = writer->flush();
  }
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("the disk is full"));
  EXPECT_FALSE(writer->commit_step());
  EXPECT_FALSE(writer->finish());
  const auto committed = writer->committed_steps();
  EXPECT_GT(committed, 0);
  writer.reset();
  const auto recording = Recording::open(folder / "w.nanscope");
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->state().value(), RunState::interrupted);
  EXPECT_EQ(recording->counts()->steps, committed);
  EXPECT_TRUE(recording->check());
}

TEST(Writer, RefusedWritesAreLatched) {
  const TemporaryFolder folder;
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8 << 20, 8 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = RecordingWriter::create(folder / "w.nanscope", {}).value();
    sample::add_step(*writer, 1, 0, 0, 2, 10, 100, true);
    if (!writer->flush()) _exit(1);
    StepRow step;
    step.id = 2;
    writer->add(step);
    OpRow op;
    op.id = 3;
    op.step = 2;
    writer->add(op, {});
    TensorRow tensor;
    tensor.id = tensor.op = 3;
    tensor.tokens = 4096;
    tensor.channels = 1024;
    writer->add(tensor, {}, std::vector<std::byte>(16 << 20));
    std::ignore = writer->commit_step();
    const auto status = writer->flush();
    writer.reset();
    _exit(!status && status.error().message.find('\n') == std::string::npos ? 0 : 2);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  const auto recording = Recording::open(folder / "w.nanscope");
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->counts()->steps, 1);
  EXPECT_TRUE(recording->check());
}

/// More than SQLite's cache holds, committed often and read meanwhile: whoever sees a step sees all of its bytes.
TEST(Writer, WhatIsCommittedIsInTheFile) {
  const TemporaryFolder folder;
  WriterOptions options;
  options.commit_bytes = std::size_t{4} << 20;
  auto writer = RecordingWriter::create(folder / "w.nanscope", sample::run_info(), options).value();
  constexpr std::int64_t kSteps = 24;
  const auto bytes_of = [](std::int64_t step) { return sample::noise(1 << 20, static_cast<std::uint32_t>(step)); };
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    add_step_of_one(*writer, step, 256, 1024, bytes_of(step));
    ASSERT_TRUE(writer->commit_step());
    if (step % 8 != 0) continue;
    ASSERT_TRUE(writer->flush());
    const auto recording = Recording::open(folder / "w.nanscope").value();
    ASSERT_EQ(recording.counts()->steps, step);
    for (std::int64_t seen = 1; seen <= step; ++seen)
      ASSERT_TRUE(recording.tensor_bytes(seen).value().value() == bytes_of(seen)) << seen << " of " << step;
  }
  ASSERT_TRUE(writer->finish());
  const auto recording = Recording::open(folder / "w.nanscope").value();
  EXPECT_TRUE(recording.check());
  EXPECT_EQ(recording.counts()->steps, kSteps);
}

/// Of SQLite's header: transactions that changed the file
/// (https://www.sqlite.org/fileformat2.html#file_change_counter).
std::uint32_t transactions_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::array<unsigned char, 28> header{};
  stream.read(reinterpret_cast<char*>(header.data()), header.size());
  return std::uint32_t{header[24]} << 24 | std::uint32_t{header[25]} << 16 | std::uint32_t{header[26]} << 8 |
         header[27];
}

TEST(Writer, StepsThatComeInPiecesShareATransaction) {
  const TemporaryFolder folder;
  WriterOptions options;
  options.commit_bytes = std::size_t{32} << 20;
  options.commit_interval = std::chrono::minutes(1);
  auto writer = RecordingWriter::create(folder / "w.nanscope", sample::run_info(), options).value();
  constexpr std::int64_t kSteps = 12;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    add_step_of_one(*writer, step, 2048, 1024, std::vector<std::byte>(std::size_t{8} << 20));
    ASSERT_TRUE(writer->commit_step());
  }
  ASSERT_TRUE(writer->finish());
  // The tables, 96 MiB, what is left of them, and the end.
  EXPECT_LE(transactions_of(folder / "w.nanscope"), 1 + 3 + 1 + 1U);
  const auto recording = Recording::open(folder / "w.nanscope").value();
  EXPECT_TRUE(recording.check());
  EXPECT_EQ(recording.counts()->steps, kSteps);
}

TEST(Writer, NoRowOfAStepThatDidNotEndIsKept) {
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

/// The whole of a tensor of several chunks, a late one and one that comes in parts, whose memory others hold.
TEST(Writer, MemoryOfOthersIsHeldUntilItIsWritten) {
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
  const auto hash_of = [](std::span<const std::byte> bytes) {
    ContentHash hash;
    hash.add(bytes);
    return hash.finish();
  };
  const auto memory = std::make_shared<std::vector<std::byte>>(sample::noise(std::size_t{40} * 16384 * 4, 1));
  const std::vector<Health> tiles = sample::many_of(512, std::size_t{40} * 32, 1);
  const auto held =
      std::make_shared<std::pair<std::shared_ptr<std::vector<std::byte>>, std::vector<Health>>>(memory, tiles);
  row.hash = hash_of(*memory);
  writer->add_observed(row, {.tiles = held->second, .elements = *memory, .memory = held});
  const auto late = sample::noise(memory->size(), 2);
  row.id = 2;
  row.hash = hash_of(late);
  writer->add(row);
  const auto parts = sample::noise(memory->size(), 3);
  row.id = 3;
  row.hash = hash_of(parts);
  writer->add(row);
  writer->add_bytes(2, late);
  for (std::size_t at = 0; at < parts.size(); at += RecordingWriter::kPartBytes) {
    const std::size_t size = std::min(parts.size() - at, RecordingWriter::kPartBytes);
    writer->add_part(
        3, {parts.begin() + static_cast<std::ptrdiff_t>(at), parts.begin() + static_cast<std::ptrdiff_t>(at + size)});
  }
  ASSERT_TRUE(writer->commit_step());
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(held.use_count(), 1);
  const auto recording = Recording::open(path).value();
  EXPECT_TRUE(recording.tensor_bytes(1).value().value() == *memory);
  EXPECT_TRUE(recording.tensor_bytes(2).value().value() == late);
  EXPECT_TRUE(recording.tensor_bytes(3).value().value() == parts);
}

TEST(Writer, OthersMayAskWhileOneThreadAdds) {
  const TemporaryFolder folder;
  WriterOptions options;
  options.queue_bytes = 1 << 14;  // so that the queue fills up and add() has to wait
  options.commit_interval = std::chrono::milliseconds(1);
  auto writer = RecordingWriter::create(folder / "w.nanscope", {}, options).value();
  ASSERT_TRUE(writer->commit_step());
  ASSERT_TRUE(writer->flush());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        if (i % 20 == 0) std::ignore = writer->flush();
        std::ignore = writer->committed_steps();
        std::ignore = writer->buffer(1000);
      }
    });
  }
  std::thread reader([&] {
    for (int i = 0; i < 20; ++i) {
      const auto recording = Recording::open(folder / "w.nanscope");
      ASSERT_TRUE(recording) << recording.error().message;
      ASSERT_TRUE(recording->kernels());
      ASSERT_EQ(recording->state().value(), RunState::recording);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    writer->add(KernelRow{i % 4, "kernel", i, 1, "{}"});
    if (i % 50 == 0) {
      ASSERT_TRUE(writer->commit_step());
    }
  }
  for (auto& thread : threads) thread.join();
  reader.join();
  ASSERT_TRUE(writer->finish());
  EXPECT_FALSE(writer->finish()) << "only once";
  const auto recording = Recording::open(folder / "w.nanscope").value();
  for (int t = 0; t < 4; ++t) {
    const auto kernels = recording.kernels(t).value();
    ASSERT_EQ(kernels.size(), 500U);
    for (int i = 0; i < 500; ++i)
      EXPECT_EQ(kernels[static_cast<std::size_t>(i)].start_ns, 4 * i + t) << "in the order added";
  }
}

}  // namespace
}  // namespace nanscope
