#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/unit/instrument/dump/diagnose_dump.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool noted(const OpenDump& dump, const std::string& where, const std::string& text) {
  const auto& notes = dump.dump().notes;
  return std::any_of(notes.begin(), notes.end(), [&](const RunNote& note) {
    return note.tensor == where && note.text.find(text) != std::string::npos;
  });
}

TEST(UnreadFiles, AreNotedWhereOthersWereRead) {
  RawDump dump;
  dump.add("layers.0.mlp.output", "f32", {2, 2});
  dump.write("empty.safetensors", "");
  dump.write("cut.npy", "\x93NUMPY\x01");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ((*opened)->dump().tensors.size(), 1U);
  ASSERT_EQ((*opened)->unread().size(), 2U);
  EXPECT_THAT((*opened)->unread()[0].text, HasSubstr((dump.root() / "cut.npy").string() + ": "));
  EXPECT_TRUE(noted(**opened, "cut.npy", "not read: "));
  EXPECT_TRUE(noted(**opened, "empty.safetensors", "not read: "));
}

TEST(UnreadFiles, RefuseADumpOfNothingElse) {
  RawDump dump;
  dump.write("cut.npy", "\x93NUMPY\x01");
  const auto one = dump.open();
  ASSERT_FALSE(one.has_value());
  EXPECT_EQ(one.error().message.rfind((dump.root() / "cut.npy").string() + ": ", 0), 0U);
  dump.write("other.npy", "\x93NUMPY\x01");
  const auto two = dump.open();
  ASSERT_FALSE(two.has_value());
  EXPECT_THAT(two.error().message, HasSubstr("(and 1 more like it)"));
  EXPECT_EQ(two.error().message.find('\n'), std::string::npos);
}

TEST(UnreadFiles, OfUnknownKindsAreNoted) {
  RawDump dump;
  dump.add("x", "f32", {2, 2});
  dump.write("README.md", "text beside a dump is no loss");
  EXPECT_TRUE((*dump.open())->dump().notes.empty());
  dump.write("a.h5", "0123456789abcdef");
  dump.write("b.h5", "0123456789abcdef");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(noted(**opened, "a.h5", "and 1 more files are of no kind"));
}

TEST(UnreadFiles, AStepThatWasNotWrittenToItsEndIsLeftOut) {
  RawDump dump;
  dump.add("x", "f32", {2, 2});
  fs::create_directory(dump.root() / ".step_00003.1f2e3d4c.partial");
  dump.write(".step_00003.1f2e3d4c.partial/tensors.safetensors", "cut off");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ((*opened)->dump().tensors.size(), 1U);
  EXPECT_TRUE((*opened)->unread().empty());
  EXPECT_TRUE(noted(**opened, ".step_00003.1f2e3d4c.partial", "not written to its end"));
}

TEST(UnreadFiles, LinksAreFollowedToFilesAlone) {
  RawDump dump;
  dump.add("x", "f32", {2, 2});
  fs::create_directory_symlink(dump.root(), dump.root() / "loop");
  fs::create_symlink("itself", dump.root() / "itself");
  fs::create_symlink("gone", dump.root() / "nowhere");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ((*opened)->dump().tensors.size(), 1U);
  EXPECT_TRUE(noted(**opened, "loop", "a link to a folder"));
  EXPECT_TRUE(noted(**opened, "itself", "leads nowhere"));
  EXPECT_TRUE(noted(**opened, "nowhere", "leads nowhere"));
}

TEST(UnreadFiles, MsprobeDatabasesAreRefusedWithAReason) {
  for (const auto& [name, reason] : {std::pair("build_1.vis.db", "no table of msprobe's nodes"),
                                     {"monitor.trend.db", "a database of msprobe's trends, which is not read"}}) {
    RawDump dump;
    dump.write(name, std::string("SQLite format 3\0....", 20));
    const auto opened = dump.open();
    ASSERT_FALSE(opened.has_value());
    EXPECT_THAT(opened.error().message, HasSubstr(reason));
  }
}

/// A shape of statistics alone claims what no bytes bear out.
TEST(UnreadFiles, StatisticsOfAHugeTensorTakeNoMemory) {
  RawDump dump;
  dump.write("dump.json", R"({"task": "statistics", "data": {"Module.model.norm.Norm.forward.0": {"output": [
      {"dtype": "torch.float32", "shape": [1125899906842624, 4], "Max": NaN, "Min": NaN, "Mean": NaN, "Norm": NaN},
      {"dtype": "torch.float32", "shape": [9223372036854775807, 9], "Max": 1, "Min": 0, "Mean": 0, "Norm": 0}]}}})");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  ASSERT_EQ((*opened)->dump().tensors.size(), 1U);
  EXPECT_EQ((*opened)->dump().tensors[0].health.nan, 1U);
  EXPECT_FALSE((*opened)->row_health((*opened)->dump().tensors[0]).has_value());
  EXPECT_TRUE(diagnose_dump(**opened).has_value());
}

/// A damaged directory of a producer costs the names that it gives, not the tensors.
TEST(UnreadFiles, ADamagedDirectoryLeavesTheTensors) {
  RawDump dump;
  dump.add("x", "f32", {2, 2});
  dump.write("step0/rank0/dump.json", "{\"task\": \"tensor\", \"data\": {");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  ASSERT_EQ((*opened)->unread().size(), 1U);
  EXPECT_THAT((*opened)->unread()[0].text, HasSubstr("not JSON here"));
}

TEST(DiagnoseDump, EndsWhenAsked) {
  RawDump dump;
  dump.add("model.layers.0.mlp.output", "f32", {2, 4});
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value());
  std::stop_source stop;
  DiagnoseOptions options;
  options.stop = stop.get_token();
  EXPECT_TRUE(diagnose_dump(**opened, options).has_value());
  stop.request_stop();
  const auto diagnosis = diagnose_dump(**opened, options);
  ASSERT_FALSE(diagnosis.has_value());
  EXPECT_EQ(diagnosis.error().message, "stopped");
}

}  // namespace
}  // namespace nanscope
