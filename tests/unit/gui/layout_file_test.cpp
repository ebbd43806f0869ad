#include "gui/layout_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

SavedLayout read_text(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "layout", std::ios::binary) << text;
  return read_layout(folder / "layout");
}

TEST(LayoutFile, GivesBackWhatWasLeft) {
  const TemporaryFolder folder;
  const fs::path file = folder / "state/nanscope/layout";
  const SavedLayout left{{0.2F, 0.3F, 0.123456789F}, "scales", "light", {1234, 777}, Vision::deutan, 130,
                         {9, Notation::bits}};
  write_layout(file, left);
  EXPECT_EQ(read_layout(file), left);
  SavedLayout first = left;
  first.tab.clear();
  write_layout(file, first);
  EXPECT_EQ(read_layout(file), first);
}

TEST(LayoutFile, LeavesNothingElseBeside) {
  const TemporaryFolder folder;
  write_layout(folder / "layout", {});
  write_layout(folder / "layout", {});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{}), 1);
}

TEST(LayoutFile, ABrokenOneIsAsNone) {
  const SavedLayout none;
  EXPECT_EQ(read_layout("/no/such/layout"), none);
  EXPECT_EQ(read_layout("/"), none);
  EXPECT_EQ(read_text(""), none);
  EXPECT_EQ(read_text(std::string(100'000, '\0')), none);
  EXPECT_EQ(read_text("left\nleft nan\nright -3\nupper 1e9\ntheme pink\nsize 3x4\npalette pink\nzoom 5\nzoom "
                      "1e2\ndigits 40\nnotation roman\ntab nowhere\nleft 0.3x\n"),
            none);
}

TEST(LayoutFile, WhatMakesSenseInABrokenOneIsKept) {
  const SavedLayout layout = read_text("nonsense\nsomething new\nleft inf\nright 0.4\ntheme light\n");
  EXPECT_EQ(layout.shares.left, Shares{}.left);
  EXPECT_EQ(layout.shares.right, 0.4F);
  EXPECT_EQ(layout.theme, "light");
}

TEST(LayoutFile, WhatCannotBeWrittenIsLeft) {
  write_layout("/proc/no/such/layout", {});
  write_layout({}, {});
}

}  // namespace
}  // namespace nanscope::gui
