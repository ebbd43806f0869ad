#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/files/output_file.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"

namespace nanscope::output_folder_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(OutputFolderTest, ItHasItsNameWhenAllIsThere) {
  const TemporaryFolder folder;
  auto output = OutputFolder::create(folder / "dump/", {});
  ASSERT_TRUE(output) << output.error().message;
  ASSERT_TRUE(output->write("a/b/file", bytes("text")));
  EXPECT_FALSE(fs::exists(folder / "dump"));
  ASSERT_TRUE(output->commit());
  EXPECT_EQ(read_text(folder / "dump/a/b/file"), "text");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(OutputFolderTest, WithoutCommitNothingStays) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "empty");
  for (const char* name : {"dump", "empty"}) {
    auto output = OutputFolder::create(folder / name, {});
    ASSERT_TRUE(output && output->write("a/file", bytes("text")));
  }
  EXPECT_EQ(entries(folder.path()), 1U);
  EXPECT_TRUE(fs::is_empty(folder / "empty"));
}

TEST(OutputFolderTest, WhatIsInAFolderStaysWithoutReplace) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "dump/a");
  std::ofstream(folder / "dump/a/file") << "mine";
  const auto refused = OutputFolder::create(folder / "dump", {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("dump: is not empty"));
  auto output = OutputFolder::create(folder / "dump", {.replace = true});
  ASSERT_TRUE(output && output->write("a/file", bytes("new")) && output->write("c/file", bytes("more")));
  EXPECT_EQ(read_text(folder / "dump/a/file"), "mine");
  ASSERT_TRUE(output->commit());
  EXPECT_EQ(read_text(folder / "dump/a/file"), "new");
  EXPECT_EQ(read_text(folder / "dump/c/file"), "more");
  EXPECT_EQ(entries(folder / "dump"), 2U);
}

TEST(OutputFolderTest, AnInputInItIsNotReplaced) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "dump");
  std::ofstream(folder / "dump/file") << "mine";
  auto output = OutputFolder::create(folder / "dump", {.replace = true, .inputs = {folder / "dump/file"}});
  ASSERT_TRUE(output);
  EXPECT_FALSE(output->write("file", bytes("new")));
  output = OutputFolder::create(folder / "other", {});
  EXPECT_EQ(read_text(folder / "dump/file"), "mine");
}

TEST(OutputFolderTest, AFileOfTheNameOrALinkToNothingIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "mine";
  fs::create_symlink(folder / "nothing", folder / "link");
  EXPECT_FALSE(OutputFolder::create(folder / "file", {.replace = true}));
  EXPECT_FALSE(OutputFolder::create(folder / "link", {.replace = true}));
  EXPECT_EQ(read_text(folder / "file"), "mine");
}

TEST(OutputFolderTest, OneThatAnotherMadeMeanwhileIsNotTouched) {
  const TemporaryFolder folder;
  auto output = OutputFolder::create(folder / "dump", {});
  ASSERT_TRUE(output && output->write("file", bytes("ours")));
  fs::create_directory(folder / "dump");
  std::ofstream(folder / "dump/file") << "theirs";
  EXPECT_FALSE(output->commit());
  EXPECT_EQ(read_text(folder / "dump/file"), "theirs");
}

}  // namespace
}  // namespace nanscope::output_folder_test
