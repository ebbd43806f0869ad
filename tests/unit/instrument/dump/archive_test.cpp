#include "instrument/dump/containers/archive.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "instrument/dump/what_it_is.h"
#include "instrument/weights/safetensors.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"
#include "tests/zip_builder.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

std::string safetensors(float value) {
  const std::vector<float> values(8, value);
  const auto bytes =
      encode_safetensors({{"model.layers.0.mlp.output", "F32", {2, 4}, std::as_bytes(std::span(values))}});
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

ZipEntry stored(const std::string& name, const std::string& data) {
  return {.name = name, .data = data, .crc = ZipBuilder::crc_of(data)};
}

ZipEntry deflated(const std::string& name, const std::string& data) {
  return {.name = name,
          .data = ZipBuilder::deflated(data),
          .method = 8,
          .size = static_cast<std::uint32_t>(data.size()),
          .crc = ZipBuilder::crc_of(data)};
}

std::string tar_member(const std::string& name, const std::string& data, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, fmt::format("{:011o}", data.size()));
  header[156] = type;
  header.replace(257, 5, "ustar");
  std::string padded = data;
  padded.resize((data.size() + 511) / 512 * 512);
  return header + padded;
}

void expect_two_steps(const RawDump& dump) {
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->dump().tensors.size(), 2U);
  for (const int step : {0, 1}) {
    const DumpTensor& one = (*opened)->dump().tensors[static_cast<std::size_t>(step)];
    EXPECT_EQ(one.at.step, step);
    EXPECT_EQ((*opened)->values(one, 0, 1).value().front(), static_cast<float>(step + 1));
  }
  EXPECT_TRUE((*opened)->check());
}

TEST(Archives, AZipOfADumpIsReadMemberByMember) {
  RawDump dump;
  dump.write("dump.zip", ZipBuilder({stored("d/acts_step0.safetensors", safetensors(1)), stored("d/README", "text"),
                                     deflated("d/acts_step1.safetensors", safetensors(2))})
                             .bytes);
  expect_two_steps(dump);
}

TEST(Archives, ATarOfADumpIsReadMemberByMember) {
  RawDump dump;
  dump.write("dump.tar", tar_member("d/", "", '5') + tar_member("./d/step_0.safetensors", safetensors(1)) +
                             tar_member("x", "29 path=d/step_1.safetensors\n", 'x') +
                             tar_member("d/cut", safetensors(2)) + std::string(1024, '\0'));
  expect_two_steps(dump);
}

/// GNU's: a record holds the name of the next member, and of no other. A header's prefix is the folder.
TEST(Archives, ATarsLongNamesAndPrefixesAreRead) {
  RawDump dump;
  std::string with_prefix = tar_member("step_0.safetensors", safetensors(1));
  with_prefix.replace(345, 2, "d2");
  dump.write("dump.tar", tar_member("././@LongLink", std::string("d2/step_1.safetensors\0", 22), 'L') +
                             tar_member("d2/cut", safetensors(2)) + with_prefix + std::string(1024, '\0'));
  expect_two_steps(dump);
  const auto opened = dump.open();
  EXPECT_EQ((*opened)->dump().tensors[0].name, "d2/model.layers.0.mlp.output");
}

TEST(Archives, AMemberThatUnpacksToFarMoreIsRefused) {
  RawDump dump;
  dump.write("dump.zip", ZipBuilder({deflated("a.safetensors", std::string(64 << 20, '\0'))}).bytes);
  EXPECT_THAT(dump.open().error().message, HasSubstr("more than four times the archive in memory: extract it first"));
}

TEST(Archives, AZipThatChangesIsNoticed) {
  RawDump dump;
  dump.write("dump.zip", ZipBuilder({stored("a.safetensors", safetensors(1)), stored("README", "")}).bytes);
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  dump.write("dump.zip", "gone");
  EXPECT_FALSE((*opened)->check());
}

/// numpy.savez's, whatever it is called.
TEST(Archives, AZipOfArraysAloneIsNumpys) {
  const TemporaryFolder folder;
  for (const bool also_other : {false, true}) {
    std::vector<ZipEntry> entries = {stored("a.npy", "x")};
    if (also_other) entries.push_back(stored("b.safetensors", "x"));
    const auto path = folder / "acts.zip";
    const ZipBuilder zip(entries);
    ASSERT_TRUE(write_output(path, std::as_bytes(std::span(zip.bytes)), {.replace = true}));
    EXPECT_EQ(is_archive_of_files(path, std::as_bytes(std::span(zip.bytes))), also_other);
  }
}

TEST(Archives, ADamagedMemberIsTold) {
  RawDump dump;
  dump.write("dump.zip",
             ZipBuilder({stored("a.safetensors", safetensors(1)), stored("b.safetensors", "damaged")}).bytes);
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->unread().size(), 1U);
  EXPECT_THAT((*opened)->unread()[0].text, HasSubstr("dump.zip: b.safetensors"));
}

TEST(Archives, ATarThatLeavesItsFolderOrEndsEarlyIsRefused) {
  RawDump dump;
  dump.write("dump.tar", tar_member("../x.safetensors", safetensors(1)));
  EXPECT_THAT(dump.open().error().message, HasSubstr("dump.tar: offset 0: the member's name '../x.safetensors'"));
  dump.write("dump.tar", tar_member("x.safetensors", safetensors(1)).substr(0, 600));
  EXPECT_THAT(dump.open().error().message, HasSubstr("and the file ends after 88"));
  dump.write("dump.tar", std::string(600, '\x7f') + '\x01');
  EXPECT_THAT(dump.open().error().message, HasSubstr("offset 0: no header of a tar's member"));
}

std::string refusal(const std::string& file, const std::string& content) {
  RawDump dump;
  dump.write(file, content);
  const auto opened = dump.open();
  return opened ? "" : opened.error().message;
}

TEST(WhatItIs, IsSaidOfWhatIsNoDump) {
  EXPECT_THAT(refusal("m.gguf", "GGUF\x03"), HasSubstr("m.gguf: offset 0: not a GGUF file"));
  EXPECT_THAT(refusal("x.pkl", "\x80\x04]\x94."), HasSubstr("x.pkl: is a pickle of Python objects"));
  EXPECT_THAT(refusal("x.pkl", "\x80\x02]q."), HasSubstr("x.pkl: is a pickle of Python objects"));
  EXPECT_THAT(refusal("x.html", "<!DOCTYPE html><html>"), HasSubstr("is a page of HTML"));
  EXPECT_THAT(refusal("x.safetensors", "<!doctype html><html>"), HasSubstr("x.safetensors: is a page of HTML"));
  EXPECT_THAT(refusal("x.safetensors", "version https://git-lfs.github.com/spec/v1"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal("x.log", "INFO all is well\n"),
              HasSubstr("x.log: holds no tensors that nanscope reads: it is a text, expected safetensors"));
  EXPECT_THAT(refusal("x.log", "INFO - lm_head_activation_max \t iteration=000000 \t value=nan\n"),
              HasSubstr("statistics log of nvdlfw-inspect"));
  EXPECT_THAT(refusal("x.log", "iteration=3 done\n"), HasSubstr("it is a text"));
  EXPECT_THAT(refusal("x.log", "SQLite format 3 and no more"), testing::Not(HasSubstr("it is a text")));
  EXPECT_THAT(refusal("x.txt", "    aten::mm(t: f16[2, 2])  ->  t: f16[2, 2]\n"), HasSubstr("torch's DebugMode"));
  EXPECT_THAT(refusal("x.txt", "abs min  abs max  metadata\n"), HasSubstr("DebugUnderflowOverflow"));
  EXPECT_THAT(refusal("x.tar.gz", "\x1f\x8b\x08"), HasSubstr("compressed by gzip: extract it"));
}

TEST(WhatItIs, JsonMayBeAProducersAndIsNotJudgedAsAText) {
  RawDump dump;
  for (const char* file : {"x.json", "x.jsonl", "x.txt"}) dump.write(file, "no tensors");
  EXPECT_FALSE(what_text_it_is(dump.root() / "x.json"));
  EXPECT_FALSE(what_text_it_is(dump.root() / "x.jsonl"));
  EXPECT_TRUE(what_text_it_is(dump.root() / "x.txt"));
}

TEST(WhatItIs, ANameOfARepositoryIsNoFile) {
  EXPECT_TRUE(may_be_repository("Qwen/Qwen3-8B"));
  EXPECT_FALSE(may_be_repository("dump"));
  EXPECT_FALSE(may_be_repository("/tmp/dump"));
  EXPECT_FALSE(may_be_repository("./dump/step_0"));
}

}  // namespace
}  // namespace nanscope
