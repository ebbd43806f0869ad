#include "gui/file_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const FileList& list) {
  std::vector<std::string> all;
  for (const FileEntry& one : list.entries) all.push_back(one.name + (one.folder ? "/" : ""));
  return all;
}

TEST(FileList, ShowsFoldersFirstAndNoPipes) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "zeta");
  fs::create_directory(folder / "Alpha");
  std::ofstream(folder / "b.nanscope") << "12345";
  std::ofstream(folder / "A.npy");
  std::ofstream(folder / ".hidden");
  ::mkfifo((folder / "pipe").c_str(), 0600);
  fs::create_symlink(folder / "gone", folder / "broken");
  fs::create_directory_symlink(folder / "zeta", folder / "link");
  const FileList list = list_folder(folder.path(), false);
  EXPECT_THAT(names(list), ElementsAre("Alpha/", "link/", "zeta/", "A.npy", "b.nanscope"));
  EXPECT_EQ(list.entries[4].bytes, 5U);
  EXPECT_NE(list.entries[4].changed, 0);
  EXPECT_THAT(names(list_folder(folder.path(), true)),
              ElementsAre("Alpha/", "link/", "zeta/", ".hidden", "A.npy", "b.nanscope"));
  EXPECT_EQ(list.problem, "");
  EXPECT_THAT(list_folder(folder / "nothing", false).problem, HasSubstr("No such file"));
}

TEST(FileList, TypedTextFiltersOrGoesOn) {
  const auto understood = [](std::string_view typed) {
    const TypedPath path = understand_path("/data/runs", typed, "/home/ann");
    return path.folder.string() + "|" + path.name;
  };
  EXPECT_EQ(understood(""), "/data/runs|");
  EXPECT_EQ(understood("cap"), "/data/runs|cap");
  EXPECT_EQ(understood("sub/ca"), "/data/runs/sub|ca");
  EXPECT_EQ(understood("sub/"), "/data/runs/sub|");
  EXPECT_EQ(understood("../x"), "/data|x");
  EXPECT_EQ(understood("../../"), "/|");
  EXPECT_EQ(understood("/"), "/|");
  EXPECT_EQ(understood("/tmp"), "/|tmp");
  EXPECT_EQ(understood("/tmp/"), "/tmp|");
  EXPECT_EQ(understood("~"), "/home/ann|");
  EXPECT_EQ(understood("~/dumps/a"), "/home/ann/dumps|a");
  EXPECT_EQ(understood("~/"), "/home/ann|");
  EXPECT_EQ(understood("~x"), "/data/runs|~x");
  EXPECT_EQ(understand_path("/data", "~", {}).name, "~");
}

TEST(FileList, NamesThatBeginWithTheTextComeFirst) {
  const std::vector<FileEntry> entries = {{.name = "my-run"}, {.name = "Run-2"}, {.name = "dump"}, {.name = "running"}};
  EXPECT_THAT(matching(entries, "run"), ElementsAre(1, 3, 0));
  EXPECT_THAT(matching(entries, ""), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(matching(entries, "none"), ElementsAre());
}

TEST(FileList, ShortcutsAreThereOnce) {
  const TemporaryFolder folder;
  const std::vector<fs::path> recent = {folder / "a.nanscope", folder / "b.nanscope", "/no/such/c.nanscope"};
  const std::vector<Shortcut> all = shortcuts(folder.path(), recent);
  EXPECT_EQ(all.front().name, "Home");
  EXPECT_EQ(all.back().folder, "/");
  EXPECT_EQ(std::ranges::count(all, folder.path(), &Shortcut::folder), 1);
  for (const Shortcut& one : all) EXPECT_TRUE(fs::is_directory(one.folder)) << one.folder;
}

}  // namespace
}  // namespace nanscope::gui
