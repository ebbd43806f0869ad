#include "core/files/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/read_text.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override { ::umask(022); }

  fs::path file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_.path())) all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  /// As one that goes without commit().
  static void drop(Result<OutputFile>& file) { const OutputFile gone = std::move(*file); }
  static std::string refusal(const Status& status) { return status ? "no refusal" : status.error().message; }

  TemporaryFolder folder_;
};

TEST_F(OutputFileTest, WritesAWholeFileAndNothingBeside) {
  ASSERT_TRUE(write_output(folder_ / "a.txt", "text"));
  EXPECT_EQ(read_text(folder_ / "a.txt"), "text");
  EXPECT_EQ(names(), std::vector<std::string>{"a.txt"});
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "a.txt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644U);
}

TEST_F(OutputFileTest, WhatExistsIsReplacedWhenThatIsAskedForAlone) {
  const fs::path path = file("a.txt", "mine");
  EXPECT_THAT(refusal(write_output(path, "text")), HasSubstr("a.txt: exists already"));
  EXPECT_EQ(read_text(path), "mine");
  ASSERT_TRUE(write_output(path, "text", {.replace = true}));
  EXPECT_EQ(read_text(path), "text");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(OutputFileTest, ALinkIsNotFollowed) {
  const fs::path precious = file("precious", "mine");
  fs::create_symlink(precious, folder_ / "link");
  fs::create_symlink(folder_ / "nothing", folder_ / "dangling");
  EXPECT_FALSE(write_output(folder_ / "link", "text"));
  EXPECT_FALSE(write_output(folder_ / "dangling", "text"));
  ASSERT_TRUE(write_output(folder_ / "link", "text", {.replace = true}));
  EXPECT_EQ(read_text(precious), "mine");
  EXPECT_FALSE(fs::exists(folder_ / "nothing"));
}

TEST_F(OutputFileTest, AnInputIsNeverReplacedWhateverItsName) {
  const fs::path input = file("input", "mine");
  fs::create_hard_link(input, folder_ / "hard");
  fs::create_symlink(input, folder_ / "soft");
  for (const char* name : {"input", "hard", "soft"}) {
    const Status written = write_output(folder_ / name, "text", {.replace = true, .inputs = {input}});
    EXPECT_THAT(refusal(written), HasSubstr("is what this command reads")) << name;
  }
  EXPECT_EQ(read_text(input), "mine");
}

TEST_F(OutputFileTest, NorIsAFileInAFolderThatIsRead) {
  fs::create_directories(folder_ / "dump/deep");
  const fs::path inside = file("dump/deep/a.npy", "mine");
  fs::create_directory_symlink(folder_ / "dump", folder_ / "other");
  for (const char* name : {"dump/deep/a.npy", "other/deep/a.npy", "dump/../dump/deep/a.npy"}) {
    const Status written = write_output(folder_ / name, "text", {.replace = true, .inputs = {folder_ / "dump"}});
    EXPECT_THAT(refusal(written), HasSubstr("which this command reads")) << name;
  }
  EXPECT_EQ(read_text(inside), "mine");
  EXPECT_TRUE(write_output(folder_ / "dump/new.html", "text", {.inputs = {folder_ / "dump"}}));
  const fs::path beside = file("dumped", "theirs");
  EXPECT_TRUE(write_output(beside, "text", {.replace = true, .inputs = {folder_ / "dump"}}));
}

TEST_F(OutputFileTest, AFailureLeavesTheOldFileAndNothingElse) {
  const fs::path path = file("a.txt", "mine");
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status written = write_output(path, std::string(5000, 'x'), {.replace = true});
    std::_Exit(!written && written.error().message.find("ulimit -f") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(path), "mine");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(OutputFileTest, OfTwoWritersOneWins) {
  for (int round = 0; round < 50; ++round) {
    const fs::path path = folder_ / ("a" + std::to_string(round));
    std::array<bool, 4> won{};
    {
      std::vector<std::jthread> writers;
      for (std::size_t i = 0; i < won.size(); ++i) {
        writers.emplace_back([&, i] { won.at(i) = write_output(path, std::to_string(i)).has_value(); });
      }
    }
    ASSERT_EQ(std::count(won.begin(), won.end(), true), 1);
    const auto winner = static_cast<std::size_t>(std::find(won.begin(), won.end(), true) - won.begin());
    EXPECT_EQ(read_text(path), std::to_string(winner));
  }
  EXPECT_EQ(names().size(), 50U);
}

TEST_F(OutputFileTest, AFileThatAnotherPutThereMeanwhileIsNotTheOneThatMayBeReplaced) {
  const fs::path path = file("a.txt", "old");
  const OutputOptions options{.replaces = identity_of(path)};
  auto output = OutputFile::create(path, options);
  ASSERT_TRUE(output);
  ASSERT_TRUE(output->write(bytes("ours")));
  fs::rename(file("b.txt", "theirs"), path);
  EXPECT_FALSE(output->commit());
  drop(output);
  EXPECT_EQ(read_text(path), "theirs");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(OutputFileTest, TheOneThatMayBeReplacedIs) {
  const fs::path path = file("a.txt", "old");
  auto output = OutputFile::create(path, {.replaces = identity_of(path)});
  ASSERT_TRUE(output && output->write(bytes("new")));
  EXPECT_EQ(read_text(path), "old");
  ASSERT_TRUE(output->commit());
  EXPECT_EQ(read_text(path), "new");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(OutputFileTest, InViewItHasItsNameAtOnceAndNobodyTakesItAway) {
  const fs::path path = folder_ / "live";
  auto output = OutputFile::create_in_view(path, {});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->path(), path);
  ASSERT_TRUE(output->write(bytes("half")));
  EXPECT_EQ(read_text(path), "half");
  const Status other = write_output(path, "theirs", {.replace = true});
  EXPECT_THAT(refusal(other), HasSubstr("is being written by another process"));
  drop(output);
  EXPECT_FALSE(fs::exists(path)) << "nothing was worth to be kept";
  output = OutputFile::create_in_view(path, {});
  ASSERT_TRUE(output && output->write(bytes("half")));
  output->keep();
  drop(output);
  EXPECT_EQ(read_text(path), "half") << "it stays as far as it came";
  EXPECT_TRUE(write_output(path, "theirs", {.replace = true})) << "nobody writes it any more";
}

TEST_F(OutputFileTest, InViewOverAnOldOneTheOldOneStays) {
  const fs::path path = file("a", "old");
  auto output = OutputFile::create_in_view(path, {.replace = true});
  ASSERT_TRUE(output && output->write(bytes("new")));
  EXPECT_EQ(read_text(path), "old");
  drop(output);
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(OutputFileTest, WhatWasPrivateStaysPrivate) {
  const fs::path path = file("a", "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(write_output(path, "new", {.replace = true}));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(write_output(folder_ / "b", "new", {.mode = 0600}));
  EXPECT_EQ(fs::status(folder_ / "b").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(OutputFileTest, AFolderAndAMissingFolderAreRefused) {
  fs::create_directory(folder_ / "folder");
  EXPECT_THAT(refusal(write_output(folder_ / "folder", "x", {.replace = true})), HasSubstr("is a folder"));
  EXPECT_THAT(refusal(write_output(folder_ / "none/a", "x")), HasSubstr("there is no folder '"));
  EXPECT_THAT(refusal(check_output(folder_ / "none/a", {})), HasSubstr("there is no folder '"));
}

TEST_F(OutputFileTest, ALongNameIsNoProblem) {
  const fs::path path = folder_ / std::string(255, 'n');
  ASSERT_TRUE(write_output(path, "text"));
  EXPECT_EQ(read_text(path), "text");
}

TEST_F(OutputFileTest, APipeIsWrittenTo) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::jthread reader([&] { got = read_text(pipe); });
  EXPECT_TRUE(is_stream(pipe));
  EXPECT_TRUE(write_output(pipe, "text"));
  reader.join();
  EXPECT_EQ(got, "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(OutputFileTest, ADescriptorIsWrittenToAndTheLinkToItStays) {
  const fs::path path = folder_ / "target";
  const int opened = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(opened, 0);
  const fs::path name = "/dev/fd/" + std::to_string(opened);
  fs::create_symlink(name, folder_ / "link");
  EXPECT_TRUE(is_stream(folder_ / "link"));
  EXPECT_TRUE(write_output(folder_ / "link", "te"));
  EXPECT_TRUE(write_output(name, "xt", {.replace = true}));
  ::close(opened);
  EXPECT_EQ(read_text(path), "text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_FALSE(is_stream(path));
}

TEST_F(OutputFileTest, AFullDeviceIsSaid) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THAT(refusal(write_output("/dev/full", "x")), HasSubstr("/dev/full: cannot be written: No space left"));
}

}  // namespace
}  // namespace nanscope
