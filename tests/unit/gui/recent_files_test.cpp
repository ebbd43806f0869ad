#include "gui/recent_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

fs::path made(const TemporaryFolder& folder, const std::string& name) {
  std::ofstream(folder / name) << "x";
  return folder / name;
}

TEST(RecentFiles, TheNewestIsFirstAndNoneIsTwice) {
  const TemporaryFolder folder;
  const fs::path list = folder / "state/nanscope/recent";
  const fs::path a = made(folder, "a");
  const fs::path b = made(folder, "b");
  for (const fs::path& file : {a, b, a}) remember(list, file);
  EXPECT_THAT(recent_files(list), ::testing::ElementsAre(a, b));
}

TEST(RecentFiles, WhatIsGoneIsLeftOut) {
  const TemporaryFolder folder;
  const fs::path list = folder / "recent";
  const fs::path a = made(folder, "a");
  const fs::path b = made(folder, "b");
  remember(list, a);
  remember(list, b);
  fs::remove(b);
  EXPECT_THAT(recent_files(list), ::testing::ElementsAre(a));
}

TEST(RecentFiles, TheListDoesNotGrow) {
  const TemporaryFolder folder;
  const fs::path list = folder / "recent";
  for (int i = 0; i < 30; ++i) remember(list, made(folder, "file" + std::to_string(i)));
  EXPECT_EQ(recent_files(list).size(), kMostRecent);
}

TEST(RecentFiles, WithoutAFolderNothingHappens) {
  EXPECT_TRUE(recent_files("/proc/no/such/list").empty());
  remember("/proc/no/such/list", "/proc/version");
  remember({}, "/proc/version");
}

}  // namespace
}  // namespace nanscope::gui
