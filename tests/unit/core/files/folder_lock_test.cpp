#include "core/files/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FolderLock, OfTwoTheSecondIsToldWhoHoldsIt) {
  const TemporaryFolder folder;
  auto first = FolderLock::take(folder / "out", "quantize");
  ASSERT_TRUE(first) << first.error().message;
  for (const char* name : {"out", "out/", "./out"}) {
    const auto second = FolderLock::take(folder / name, "train");
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message,
                AllOf(HasSubstr("out"),
                      HasSubstr("is being written by nanscope quantize, process " + std::to_string(::getpid()))));
  }
  EXPECT_TRUE(FolderLock::take(folder / "other", "train"));
}

TEST(FolderLock, WhenItIsReleasedNothingStays) {
  const TemporaryFolder folder;
  std::optional<FolderLock> first(std::move(FolderLock::take(folder / "out", "train").value()));
  EXPECT_TRUE(fs::exists(folder / ".out.lock"));
  first.reset();
  EXPECT_FALSE(fs::exists(folder / ".out.lock"));
  EXPECT_TRUE(FolderLock::take(folder / "out", "train"));
}

TEST(FolderLock, OfAProcessThatDiedLocksNothing) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FolderLock::take(folder / "out", "train");
    ::_exit(lock ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(fs::exists(folder / ".out.lock"));
  EXPECT_TRUE(FolderLock::take(folder / "out", "train"));
}

TEST(FolderLock, FollowsNoLink) {
  const TemporaryFolder folder;
  std::ofstream(folder / "mine") << "mine";
  fs::create_symlink("mine", folder / ".out.lock");
  EXPECT_FALSE(FolderLock::take(folder / "out", "train"));
  EXPECT_EQ(fs::file_size(folder / "mine"), 4U);
}

}  // namespace
}  // namespace nanscope
