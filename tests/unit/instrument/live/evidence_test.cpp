#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "instrument/dump/open_dump.h"
#include "instrument/live/timeline_writer.h"
#include "instrument/live/watch_dump.h"
#include "tests/temporary_folder.h"

/// What a live process leaves: for its user alone, and never over what an earlier one left.
namespace nanscope::live {
namespace {

namespace fs = std::filesystem;
constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;

Finding finding() {
  Finding found;
  found.kernel = "gemm";
  KeptBuffer kept;
  kept.kernel = "gemm";
  kept.format = Format::f32;
  kept.bytes = std::vector<std::byte>(64);
  found.ring = {kept};
  return found;
}

TEST(WatchDump, AnEarlierOneIsKept) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "live.born");
  std::ofstream(folder / "live.born/finding.txt") << "mine";
  const auto first = write_watch_dump(finding(), folder / "live.born");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->folder, folder / "live.born-2");
  EXPECT_EQ(first->tensors, 1);
  EXPECT_TRUE(OpenDump::open(first->folder));
  const auto second = write_watch_dump(finding(), folder / "live.born");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->folder, folder / "live.born-3");
  EXPECT_EQ(fs::file_size(folder / "live.born/finding.txt"), 4U);
}

TEST(WatchDump, OnlyTheUserReadsIt) {
  const TemporaryFolder folder;
  const auto dump = write_watch_dump(finding(), folder / "live.born");
  ASSERT_TRUE(dump);
  for (const char* name : {"live.born", "live.born/finding.txt", "live.born/tensors.safetensors"}) {
    EXPECT_EQ(fs::status(folder / name).permissions() & kOthers, fs::perms::none) << name;
  }
}

TEST(TimelineWriter, OnlyTheUserReadsWhatHeRan) {
  const TemporaryFolder folder;
  const auto writer = TimelineWriter::create(folder / "live.nanscope", {}, "serve", 7, "1").value();
  EXPECT_EQ(fs::status(folder / "live.nanscope").permissions() & kOthers, fs::perms::none);
}

TEST(TimelineWriter, ASecondProcessHasANameOfItsOwn) {
  const TemporaryFolder folder;
  const auto first = TimelineWriter::create(folder / "live.nanscope", {}, "serve", 7, "1").value();
  const auto second = TimelineWriter::create(folder / "live.nanscope", {}, "serve", 8, "1").value();
  EXPECT_EQ(second->path(), folder / "live.8.nanscope");
}

TEST(TimelineWriter, BesideAnOldOneItHasItsNameInWordsAlone) {
  const TemporaryFolder folder;
  std::ofstream(folder / "live.nanscope") << "mine";
  const auto first = TimelineWriter::create(folder / "live.nanscope", folder / "beside", "serve", 7, "1").value();
  EXPECT_EQ(first->path(), folder / "live.nanscope");
  EXPECT_TRUE(fs::exists(folder / "beside"));
  ASSERT_TRUE(first->finish());
  EXPECT_EQ(fs::file_size(folder / "live.nanscope"), 4U);
  EXPECT_TRUE(Recording::open(folder / "beside"));
  const auto second = TimelineWriter::create(folder / "live.nanscope", folder / "beside", "serve", 8, "1").value();
  EXPECT_EQ(second->path(), folder / "live.8.nanscope");
}

}  // namespace
}  // namespace nanscope::live
