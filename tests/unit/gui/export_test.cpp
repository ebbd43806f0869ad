#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <span>
#include <thread>

#include "gui/export/exporter.h"
#include "gui/export/new_file.h"
#include "gui/export/table.h"
#include "gui/export/tables.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string cell(const std::string& text) {
  const std::string line = to_csv({{"h"}, {{text}}});
  return line.substr(3, line.size() - 5);
}

TEST(Csv, IsRfc4180) {
  EXPECT_EQ(to_csv({{"a", "b"}, {{"1", "2"}, {"", "x"}}}), "a,b\r\n1,2\r\n,x\r\n");
  EXPECT_EQ(cell("one, two"), "\"one, two\"");
  EXPECT_EQ(cell("say \"!\""), "\"say \"\"!\"\"\"");
  EXPECT_EQ(cell("two\nlines"), "two\\nlines") << "a cell is one line";
  EXPECT_EQ(cell("plain text"), "plain text");
}

TEST(Csv, DefusesFormulasAndLeavesNumbers) {
  EXPECT_EQ(cell("=1+1"), "'=1+1");
  EXPECT_EQ(cell("+cmd"), "'+cmd");
  EXPECT_EQ(cell("-cmd|' /C calc'!A0"), "'-cmd|' /C calc'!A0");
  EXPECT_EQ(cell("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(cell("  =A1"), "'  =A1");
  EXPECT_EQ(cell("\t=A1"), "\\t=A1");
  EXPECT_EQ(cell("=\"a\",b"), "\"'=\"\"a\"\",b\"");
  for (const char* number : {"-0.5", "+3", "-1e-05", "1.5", "-inf", "nan", "0x7E"}) EXPECT_EQ(cell(number), number);
}

Status fill(OutputFile& file) { return file.write(bytes_of("text")); }

TEST(NewFile, NeverOverwrites) {
  const TemporaryFolder folder;
  const std::vector<fs::path> folders{folder.path()};
  for (const char* name : {"run-scales.csv", "run-scales-2.csv", "run-scales-3.csv"}) {
    const auto made = write_new_file(folders, "run-scales", "csv", fill);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->filename(), name);
  }
}

TEST(NewFile, ALinkInTheWayIsNotFollowed) {
  const TemporaryFolder folder;
  fs::create_symlink(folder / "elsewhere", folder / "run.csv");
  const auto made = write_new_file(std::vector{folder.path()}, "run", "csv", fill);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->filename(), "run-2.csv");
  EXPECT_FALSE(fs::exists(folder / "elsewhere"));
}

TEST(NewFile, AFolderThatTakesNoneIsPassedOver) {
  const TemporaryFolder folder;
  const auto made =
      write_new_file(std::vector<fs::path>{"/proc", "/no/such/folder", folder.path()}, "run", "png", fill);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(*made, folder / "run.png");
  const auto none = write_new_file(std::vector<fs::path>{"/proc", "/no/such/folder"}, "run", "png", fill);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("/no/such/folder/run.png: cannot create: No such file"));
}

TEST(NewFile, BesideTheRecordingComesFirst) {
  const TemporaryFolder folder;
  const std::vector<fs::path> folders = folders_beside(folder / "run.nanscope");
  ASSERT_GE(folders.size(), 2U);
  EXPECT_EQ(folders[0], folder.path());
  EXPECT_EQ(folders[1], fs::current_path());
}

TEST(NewFile, WhatCannotBeFilledIsNotThere) {
  const TemporaryFolder folder;
  const auto made = write_new_file(std::vector{folder.path()}, "run", "csv", [](OutputFile& file) -> Status {
    if (Status written = fill(file); !written) return written;
    return fail("the disk is full");
  });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "the disk is full");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ExporterTest, WritesBesideTheRecordingUnderFreeNames) {
  const TemporaryFolder folder;
  std::vector<Exporter::Saved> saved;
  {
    Exporter exporter(folder / "a run.nanscope");
    const auto write = [] { return bytes_of("text"); };
    exporter.save("scales", "csv", write);
    exporter.save("scales", "csv", write);
    while (exporter.busy()) {
      for (Exporter::Saved& one : exporter.poll()) saved.push_back(std::move(one));
      std::this_thread::yield();
    }
  }
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_EQ(saved[0].value(), folder / "a run-scales.csv");
  EXPECT_EQ(saved[1].value(), folder / "a run-scales-2.csv");
  EXPECT_EQ(read_text(*saved[1]), "text");
}

TEST(ExporterTest, WhatWasAskedForIsWrittenWhenTheWindowCloses) {
  const TemporaryFolder folder;
  {
    Exporter exporter(folder / "run.nanscope");
    for (int i = 0; i < 5; ++i) exporter.save("x", "csv", [] { return bytes_of("y"); });
  }
  EXPECT_EQ(read_text(folder / "run-x-5.csv"), "y");
}

TEST(ExporterTest, AFailureLeavesNoFileAndIsSaid) {
  const TemporaryFolder folder;
  Exporter exporter(folder / "run.nanscope");
  exporter.save("x", "png", []() -> Result<std::vector<std::byte>> { return fail("no ink"); });
  exporter.save("x", "png", []() -> Result<std::vector<std::byte>> { throw std::runtime_error("worse"); });
  std::vector<std::string> said;
  while (exporter.busy()) {
    for (const Exporter::Saved& one : exporter.poll()) said.push_back(one ? "saved" : one.error().message);
  }
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0], "no ink");
  EXPECT_THAT(said[1], HasSubstr("worse"));
  EXPECT_FALSE(fs::exists(folder / "run-x.png"));
}

TEST(Tables, OfTheLedgerHaveAnEntryARow) {
  Ledger ledger;
  LedgerEntry entry;
  entry.row.layer = 1;
  entry.target.place.request = 2;
  entry.row.target = "v";
  entry.row.scale = 0.053592;
  entry.row.headroom = 0.564;
  entry.clipped = 256;
  entry.elements = 5120;
  ledger.entries.push_back(entry);
  const Table table = table_of(ledger);
  ASSERT_EQ(table.rows.size(), 1U);
  ASSERT_EQ(table.rows[0].size(), table.header.size());
  const auto at = [&](const std::string& name) {
    const auto column = std::find(table.header.begin(), table.header.end(), name);
    return table.rows[0].at(static_cast<std::size_t>(column - table.header.begin()));
  };
  EXPECT_EQ(at("request"), "2");
  EXPECT_EQ(at("target"), "v");
  EXPECT_EQ(at("scale"), "0.053592");
  EXPECT_EQ(at("headroom"), "0.564");
  EXPECT_EQ(at("clipped"), "256");
}

TEST(Tables, OfWhatIfBeginWithTheRunAsRecorded) {
  WhatIfTable what_if;
  what_if.recorded.links = {true, false};
  what_if.recorded.answers = {{true, "!"}};
  what_if.recorded.faulty = 1;
  WhatIfRow row;
  row.settings = {"kv.format=bf16", "kv.scrub=true"};
  row.breaks_at = 1;
  what_if.groups.push_back({scenarios::Effect::removes_cause, "removes the cause", "", {row}});
  what_if.without_effect = {"batch=1"};
  const Table table = table_of(what_if);
  ASSERT_EQ(table.rows.size(), 3U);
  for (const auto& line : table.rows) EXPECT_EQ(line.size(), table.header.size());
  EXPECT_EQ(table.rows[0][0], "as recorded");
  EXPECT_EQ(table.rows[0][2], "1");
  EXPECT_EQ(table.rows[1][0], "kv.format=bf16 kv.scrub=true");
  EXPECT_EQ(table.rows[1][1], "removes the cause");
  EXPECT_EQ(table.rows[1][3], "1");
  EXPECT_EQ(table.rows[2][1], "no effect");
}

TEST(Tables, OfTheCacheHaveASlotARow) {
  RequestsSheet sheet;
  KvBlock block;
  block.id = 3;
  block.holders = {2, 4};
  block.slots.resize(2);
  block.slots[1].state = SlotState::stale;
  block.slots[1].health = kNan;
  block.slots[1].request = 2;
  block.slots[1].token = 7;
  sheet.kv.blocks.push_back(block);
  const Table table = table_of(sheet);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0], ElementsAre("3", "0", "2 4", "never written", "no", "nothing recorded", "", "", ""));
  EXPECT_THAT(table.rows[1], ElementsAre("3", "1", "2 4", "left behind", "no", "NaN", "2", "7", ""));
}

TensorSheet two_by_two() {
  TensorSheet sheet;
  sheet.subject.first_token = 7;
  auto elements = std::make_shared<TensorData>();
  elements->tokens = 2;
  elements->channels = 2;
  const float values[] = {1.0F / 3, -2, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  elements->bytes.assign(bytes.begin(), bytes.end());
  sheet.elements = elements;
  sheet.rows = 2;
  sheet.columns = 2;
  sheet.row_health = {LineHealth{}, LineHealth{0.5F, 0.25F, 0.125F, 0.0625F, kAbsent}};
  return sheet;
}

TEST(Tables, OfATensorGiveItsElementsBack) {
  const Table table = table_of(two_by_two());
  EXPECT_THAT(table.header, ElementsAre("token", "channel 0", "channel 1"));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(std::stof(table.rows[0][1]), 1.0F / 3);
  EXPECT_THAT(table.rows[1], ElementsAre("8", "nan", "inf"));
}

TEST(Tables, OfATensorWithoutElementsTellItsRowsHealth) {
  TensorSheet sheet = two_by_two();
  sheet.elements.reset();
  const Table table = table_of(sheet);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[1], ElementsAre("8", "0.5", "0.25", "0.125", "0.0625"));
}

TEST(Tables, OfTheStoryKeepItsEvidence) {
  Story story;
  story.links.resize(1);
  story.links[0].number = 6;
  story.links[0].because = 5;
  story.links[0].evidence = {{"mean", "24.0"}, {"variance", "-0.0018"}};
  const Table table = table_of(story);
  EXPECT_THAT(table.rows.at(0), ElementsAre("6", "5", "", "", "", "mean 24.0; variance -0.0018"));
}

TEST(Tables, OfWhyHaveAHopARow) {
  WhyStory why;
  why.hops.resize(2);
  why.hops[1].place = "2/0/1/inner_norm.out[7,0]";
  why.hops[1].value = "NaN";
  why.hops[1].bits = "f32 0x7FFFFFFF";
  why.hops[1].bad = why.hops[1].birth = true;
  why.hops[1].numbers = {{"mean", "24"}};
  const Table table = table_of(why);
  EXPECT_THAT(table.rows.at(0), ElementsAre("1", "", "", "", "no", "no", "", ""));
  EXPECT_THAT(table.rows.at(1),
              ElementsAre("2", "2/0/1/inner_norm.out[7,0]", "NaN", "f32 0x7FFFFFFF", "yes", "yes", "", "mean 24"));
}

TEST(Tables, OfBitsHaveACodeARow) {
  BitsSheet bits;
  bits.histogram.bins = {{"0x7d", "416", 3, kHealthyLast}, {"0x7e", "448", 256, kClipped}};
  bits.histogram.chosen = 1;
  const Table table = table_of(bits);
  EXPECT_THAT(table.header, ElementsAre("code", "values", "elements", "of the element"));
  EXPECT_THAT(table.rows.at(0), ElementsAre("0x7d", "416", "3", "no"));
  EXPECT_THAT(table.rows.at(1), ElementsAre("0x7e", "448", "256", "yes"));
  bits.histogram.by_exponent = true;
  EXPECT_EQ(table_of(bits).header.front(), "exponent");
}

TEST(Tables, OfTheTimelineHaveAKindOfOpARow) {
  Timeline timeline;
  timeline.lanes.resize(1);
  timeline.lanes[0].kind = "gemm";
  timeline.lanes[0].ops = 12;
  timeline.lanes[0].bad_ops = 5;
  timeline.lanes[0].kernels = 7;
  timeline.lanes[0].busy_ns = 9000;
  EXPECT_THAT(table_of(timeline).rows.at(0), ElementsAre("gemm", "12", "5", "7", "9000"));
}

TEST(Tables, MadeFromAnotherAnswerAreEmpty) {
  EXPECT_TRUE(table_maker<Ledger>(std::make_shared<Story>())().rows.empty());
}

}  // namespace
}  // namespace nanscope::gui
