#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "instrument/files/file.h"
#include "instrument/files/source_file.h"
#include "tests/temporary_folder.h"

// g++ 12 has no __has_feature, and would read its arguments also behind a false condition of the same line.
#if defined(__SANITIZE_ADDRESS__)
#define NANSCOPE_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NANSCOPE_HAS_ASAN 1
#endif
#endif

namespace nanscope {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;

class ChangingFiles : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, std::size_t bytes, char filled = 'x') {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << std::string(bytes, filled);
    return path;
  }
  static std::string refused(const std::filesystem::path& path) {
    return path.string() + ": changed while it was read";
  }

  TemporaryFolder folder_;
};

std::size_t sum_of(std::span<const std::byte> bytes) {
  std::size_t sum = 0;
  for (const std::byte one : bytes) sum += std::to_integer<std::size_t>(one);
  return sum;
}

/// The system ends a process that touches a mapped page which is not in its file any more.
TEST_F(ChangingFiles, WhatIsCutOffWhileItIsMappedReadsAsZerosAndIsRefused) {
  const auto path = write("file", kBytes);
  const MappedFile file = MappedFile::open(path).value();
  EXPECT_EQ(sum_of(file.bytes().first(100)), 100U * 'x');
  EXPECT_TRUE(file.check());
  std::filesystem::resize_file(path, 5000);
  EXPECT_LE(sum_of(file.bytes()), 8192U * 'x');
  EXPECT_TRUE(file.lost());
  EXPECT_EQ(file.check().error().message, refused(path));
}

TEST_F(ChangingFiles, AreReadByManyThreadsWhileTheyAreCutOff) {
  for (int round = 0; round < 20; ++round) {
    const auto path = write("file", kBytes);
    const MappedFile file = MappedFile::open(path).value();
    const MappedFile other = MappedFile::open(write("other", kBytes)).value();
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] { static_cast<void>(sum_of(file.bytes().subspan(t * kBytes / 4, kBytes / 4))); });
      }
      threads.emplace_back([&] { std::filesystem::resize_file(path, 1); });
    }
    static_cast<void>(sum_of(file.bytes()));
    EXPECT_EQ(file.check().error().message, refused(path));
    EXPECT_EQ(sum_of(other.bytes()), kBytes * 'x');
    EXPECT_TRUE(other.check());
  }
}

using ChangingFilesDeathTest = ChangingFiles;

/// What is no page of a mapped file ends the process as it did before.
TEST_F(ChangingFilesDeathTest, LeaveOtherBusErrorsAlone) {
  const MappedFile file = MappedFile::open(write("file", 100)).value();
#ifdef NANSCOPE_HAS_ASAN
  EXPECT_EXIT(std::raise(SIGBUS), testing::ExitedWithCode(1), "AddressSanitizer: BUS");
#else
  EXPECT_EXIT(std::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
#endif
}

TEST_F(ChangingFiles, AreRefusedWhateverChanged) {
  const std::vector<std::function<void(const std::filesystem::path&)>> changes = {
      [](const auto& path) { std::filesystem::resize_file(path, 10); },
      [](const auto& path) { std::ofstream(path, std::ios::app) << 'y'; },
      [](const auto& path) { std::filesystem::last_write_time(path, std::filesystem::file_time_type::min()); },
      [](const auto& path) { std::filesystem::remove(path); },
      [&](const auto& path) { std::filesystem::rename(write("another", 1000), path); },
  };
  for (const std::size_t size : {std::size_t{1000}, std::size_t{300'000}}) {
    for (std::size_t i = 0; i < changes.size(); ++i) {
      SCOPED_TRACE(std::to_string(size) + ", change " + std::to_string(i));
      const auto path = write("file", size);
      const auto file = SourceFile::open(path).value();
      EXPECT_EQ(sum_of(file->hold().value().bytes), size * 'x');
      EXPECT_TRUE(file->check());
      changes[i](path);
      EXPECT_EQ(file->check().error().message, refused(path));
      EXPECT_FALSE(file->hold());
    }
  }
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

/// A process may map 65530 of them, and open a thousand.
TEST_F(ChangingFiles, AreOpenInAnyNumberWhileNobodyHoldsThem) {
  std::vector<std::shared_ptr<const SourceFile>> files;
  const std::size_t before = mappings();
  for (int i = 0; i < 2000; ++i) {
    const auto path = write(std::to_string(i), i % 10 == 0 ? 100'000 : 100);
    files.push_back(SourceFile::open(path).value());
    ASSERT_TRUE(files.back()->hold());
  }
  EXPECT_LT(mappings(), before + 100);
  const auto held = files[10]->hold().value();
  EXPECT_EQ(files[10]->hold().value().bytes.data(), held.bytes.data()) << "those who hold it at once share it";
}

TEST_F(ChangingFiles, BeginningsOfWhatIsNoFileAreNotWaitedFor) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_beginning(pipe, 16).error().message, pipe.string() + ": not a regular file");
  EXPECT_EQ(read_beginning(write("short", 3), 16).value().size(), 3U);
  EXPECT_EQ(read_beginning(write("long", 300), 16).value().size(), 16U);
}

}  // namespace
}  // namespace nanscope
