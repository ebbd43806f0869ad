#include "core/recording/page_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <vector>

#include "tests/unit/core/recording/sample.h"

/// Pages that another thread writes: the file is what it would be if each had been written at once.
namespace nanscope::sqlite {
namespace {

constexpr std::size_t kPage = PageQueue::kPageBytes;

class File {
 public:
  explicit File(const std::filesystem::path& path, int flags = O_RDWR | O_CREAT)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() { ::close(number_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }

  struct stat state() const {
    struct stat found {};
    EXPECT_EQ(::fstat(number_, &found), 0);
    return found;
  }
  std::vector<std::byte> content(std::int64_t offset = 0, std::size_t most = std::size_t{64} << 20) const {
    std::vector<std::byte> bytes(std::min(most, static_cast<std::size_t>(state().st_size)));
    EXPECT_EQ(::pread(number_, bytes.data(), bytes.size(), offset), std::ssize(bytes));
    return bytes;
  }

 private:
  int number_;
};

class Direct : public ::testing::TestWithParam<std::size_t> {};

/// Pages at the end, pages that are written again while they are on their way, and short ones.
TEST_P(Direct, TheFileIsWhatWasPushedInOrder) {
  const TemporaryFolder folder;
  const File file(folder / "pages");
  PageQueue queue(file.number(), GetParam());
  std::mt19937 random(7);
  std::vector<std::byte> expected;
  std::vector<std::weak_ptr<const void>> lent;
  for (int i = 0; i < 600; ++i) {
    const std::size_t pages = expected.size() / kPage;
    const std::size_t at = i % 3 != 0 || pages == 0 ? pages : random() % pages;
    const std::size_t size = i % 50 == 49 ? 512 : kPage;
    const auto bytes = sample::noise(size, static_cast<std::uint32_t>(i));
    expected.resize(std::max(expected.size(), (at + 1) * kPage));
    std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(at * kPage));
    if (i % 5 == 4) {  // what others hold, behind the link of a page that says something else
      const auto held =
          std::make_shared<std::vector<std::byte>>(bytes.begin() + 4, bytes.end() - (i % 2 == 0 ? 0 : 99));
      if (i % 2 != 0)
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at * kPage + size - 99), 99, std::byte{0});
      std::vector<std::byte> page(size, std::byte{7});
      std::copy_n(bytes.begin(), 4, page.begin());
      lent.push_back(held);
      ASSERT_EQ(queue.push(page, static_cast<std::int64_t>(at * kPage), {*held, held}), 0);
    } else {
      ASSERT_EQ(queue.push(bytes, static_cast<std::int64_t>(at * kPage)), 0);
    }
    if (i % 7 == 0) {
      ASSERT_EQ(queue.drain(static_cast<std::int64_t>(at * kPage), 100), 0);
      const auto there = file.content(static_cast<std::int64_t>(at * kPage), size);
      ASSERT_TRUE(std::equal(there.begin(), there.end(), expected.begin() + static_cast<std::ptrdiff_t>(at * kPage)))
          << "page " << at << " after push " << i;
    }
    if (i % 100 == 99) {
      ASSERT_EQ(queue.drain(), 0);
    }
  }
  ASSERT_EQ(queue.drain(), 0);
  for (const auto& one : lent) EXPECT_TRUE(one.expired()) << "what is written is let go of";
  std::vector<std::byte> found = file.content();
  found.resize(expected.size());  // the last page may have been a short one
  EXPECT_TRUE(found == expected);
}

TEST_P(Direct, WhatIsLeftIsWrittenAtTheEnd) {
  const TemporaryFolder folder;
  const File file(folder / "pages");
  const auto bytes = sample::noise(3 * kPage, 1);
  {
    PageQueue queue(file.number(), GetParam());
    for (std::size_t i = 0; i < 3; ++i)
      ASSERT_EQ(queue.push(std::span(bytes).subspan(i * kPage, kPage), static_cast<std::int64_t>(i * kPage)), 0);
  }
  EXPECT_TRUE(file.content() == bytes);
}

TEST_P(Direct, AnErrorIsToldOnceAndWhatWasPushedSinceIsGone) {
  const File full("/dev/full", O_RDWR);
  PageQueue queue(full.number(), GetParam());
  const auto page = sample::noise(kPage, 1);
  int told = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const int code = queue.push(page, static_cast<std::int64_t>(i * kPage));
    told = std::max(told, code);
    EXPECT_TRUE(code == 0 || code == ENOSPC) << code;
  }
  const int code = queue.drain();
  EXPECT_EQ(std::max(told, code), ENOSPC);
  EXPECT_EQ(queue.drain(), 0) << "once";
}

TEST_P(Direct, SpaceAheadOfTheEndIsGivenBack) {
  const TemporaryFolder folder;
  const File file(folder / "pages");
  PageQueue queue(file.number(), GetParam());
  const auto page = sample::noise(kPage, 1);
  constexpr std::int64_t kPages = 100;
  for (std::int64_t i = 0; i < kPages; ++i) ASSERT_EQ(queue.push(page, i * std::ssize(page)), 0);
  ASSERT_EQ(queue.drain(), 0);
  const std::int64_t size = kPages * std::ssize(page);
  EXPECT_EQ(file.state().st_size, size) << "the file ends with its last page";
  ::fsync(file.number());
  const std::int64_t before = file.state().st_blocks * 512;
  queue.give_back();
  EXPECT_EQ(file.state().st_size, size);
  if (before <= size + std::ssize(page)) GTEST_SKIP() << "this file system takes no space ahead";
  EXPECT_LE(file.state().st_blocks * 512, size + std::ssize(page));
}

INSTANTIATE_TEST_SUITE_P(PageQueue, Direct, ::testing::Values(0, std::size_t{1} << 30, 5 * kPage));

}  // namespace
}  // namespace nanscope::sqlite
