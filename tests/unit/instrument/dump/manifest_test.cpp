#include "instrument/dump/containers/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/files/output_file.h"
#include "instrument/files/file.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Manifests : public testing::Test {
 protected:
  void SetUp() override { write("data.bin", std::string(24, '\1')); }

  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_output(folder_ / name, std::as_bytes(std::span(text)), {.replace = true}).has_value());
  }

  Result<std::unique_ptr<Container>> open(const std::string& entries) {
    write("manifest.json", "{\"tensors\":[" + entries + "]}");
    return open_manifest(folder_ / "manifest.json");
  }

  std::string refusal(const std::string& entries) {
    const auto container = open(entries);
    return container ? "" : container.error().message.substr((folder_ / "manifest.json").string().size());
  }

  /// One entry with a field replaced or added.
  std::string refusal_of(const std::string& field, const std::string& value) {
    std::string entry;
    for (const auto& [key, usual] : std::vector<std::pair<std::string, std::string>>{
             {"name", "\"a\""}, {"file", "\"data.bin\""}, {"dtype", "\"f32\""}, {"shape", "[2,3]"}}) {
      if (key != field) entry += "\"" + key + "\":" + usual + ",";
    }
    return refusal("{" + entry + "\"" + field + "\":" + value + "}");
  }

  TemporaryFolder folder_;
};

TEST_F(Manifests, FieldsAreChecked) {
  EXPECT_EQ(refusal_of("note", "1"), "");
  EXPECT_EQ(refusal_of("dtype", "\"f31\""),
            ": entry 0: offset 12: the dtype \"f31\", expected one like f32, bf16, e4m3 or i64");
  EXPECT_THAT(refusal_of("dtype", "7"), HasSubstr("the dtype 7"));
  EXPECT_THAT(refusal_of("shape", "[2,-3]"), HasSubstr("the shape [2,-3], expected at most 64 whole numbers from 0"));
  EXPECT_THAT(refusal_of("shape", "[2,3.0]"), HasSubstr("the shape [2,3.0]"));
  EXPECT_THAT(refusal_of("shape", "[9223372036854775807,9223372036854775807]"), HasSubstr("has too many elements"));
  EXPECT_THAT(refusal_of("shape", "6"), HasSubstr("the shape 6"));
  EXPECT_THAT(refusal_of("offset", "-1"), HasSubstr("the offset -1"));
  EXPECT_THAT(refusal_of("offset", "18446744073709551615"), HasSubstr("the offset 18446744073709551615"));
  EXPECT_THAT(refusal_of("order", "\"K\""), HasSubstr("the order \"K\", expected \"C\" or \"F\""));
  EXPECT_THAT(refusal_of("name", "1"), HasSubstr("'name' is no text"));
  EXPECT_THAT(refusal("{}"), HasSubstr("an entry without a 'name'"));
  EXPECT_THAT(refusal("{\"name\":\"a\"}"), HasSubstr("'a': no 'file'"));
  EXPECT_THAT(refusal("{\"name\":\"a\",\"file\":\"data.bin\"}"), HasSubstr("'a': no 'dtype'"));
  EXPECT_THAT(refusal("{\"name\":\"a\",\"file\":\"data.bin\",\"dtype\":\"u8\"}"), HasSubstr("'a': no 'shape'"));
  EXPECT_THAT(refusal("7"), HasSubstr("an entry that is no object"));
  write("manifest.json", "[]");
  EXPECT_THAT(open_manifest(folder_ / "manifest.json").error().message, HasSubstr("no list 'tensors'"));
}

TEST_F(Manifests, SizesMustFitTheFile) {
  EXPECT_EQ(refusal_of("offset", "0"), "");
  EXPECT_EQ(refusal_of("offset", "1"),
            ": entry 0: offset 12: 'a': 23 bytes at 1 of data.bin, expected 24 for the shape [2, 3] in f32");
  EXPECT_THAT(refusal_of("offset", "9223372036854775807"), HasSubstr("0 bytes at 9223372036854775807"));
  EXPECT_THAT(refusal_of("shape", "[2,2]"), HasSubstr("24 bytes at 0 of data.bin, expected 16"));
  EXPECT_THAT(refusal_of("shape", "[2,4]"), HasSubstr("expected 32"));
}

TEST_F(Manifests, FilesStayInTheFolder) {
  EXPECT_EQ(refusal_of("file", "\"../data.bin\""),
            ": entry 0: offset 12: the file '../data.bin' leaves its folder, expected one in the manifest's folder");
  EXPECT_THAT(refusal_of("file", "\"/etc/passwd\""), HasSubstr("is absolute"));
  EXPECT_THAT(refusal_of("file", "\"a\\\\b\""), HasSubstr("holds a backslash"));
  const TemporaryFolder other;
  ASSERT_TRUE(write_output(other / "secret", std::vector<std::byte>(24), {.replace = true}).has_value());
  std::filesystem::create_symlink(other / "secret", folder_ / "link");
  EXPECT_THAT(refusal_of("file", "\"link\""), HasSubstr("is a link out of the manifest's folder"));
  std::filesystem::create_symlink("data.bin", folder_ / "inside");
  EXPECT_EQ(refusal_of("file", "\"inside\""), "");
  std::filesystem::create_symlink("loop", folder_ / "loop");
  EXPECT_NE(refusal_of("file", "\"loop\""), "crash");
}

TEST_F(Manifests, TensorsAreApartAndNamedOnce) {
  const auto entry = [](const char* name, int offset, int bytes) {
    return std::string("{\"name\":\"") + name + "\",\"file\":\"data.bin\",\"dtype\":\"u8\",\"shape\":[" +
           std::to_string(bytes) + "],\"offset\":" + std::to_string(offset) + "}";
  };
  EXPECT_EQ(refusal(entry("a", 8, 8) + "," + entry("b", 0, 8) + "," + entry("c", 16, 8) + "," + entry("d", 9, 0)), "");
  EXPECT_THAT(refusal(entry("a", 0, 8) + "," + entry("b", 7, 8)),
              HasSubstr("entry 1: offset 79: 'b': bytes 7 to 15 of data.bin overlap those of another tensor"));
  EXPECT_THAT(refusal(entry("a", 8, 8) + "," + entry("b", 0, 9)), HasSubstr("overlap"));
  EXPECT_THAT(refusal(entry("a", 8, 8) + "," + entry("b", 8, 8)), HasSubstr("overlap"));
  EXPECT_THAT(refusal(entry("a", 0, 24) + "," + entry("b", 8, 8)), HasSubstr("overlap"));
  EXPECT_THAT(refusal(entry("a", 0, 8) + "," + entry("a", 8, 8)), HasSubstr("the name 'a' twice"));
}

TEST_F(Manifests, MissingFilesAreSaid) {
  const auto container = open("{\"name\":\"a\",\"file\":\"gone.bin\",\"dtype\":\"u8\",\"shape\":[2]}");
  ASSERT_TRUE(container.has_value()) << container.error().message;
  ASSERT_EQ((*container)->skipped().size(), 1U);
  EXPECT_EQ((*container)->skipped()[0].reason, "its file gone.bin is missing");
}

TEST_F(Manifests, NameTheirFiles) {
  const auto container = open("{\"name\":\"a\",\"file\":\"data.bin\",\"dtype\":\"u8\",\"shape\":[24]}");
  ASSERT_TRUE(container.has_value()) << container.error().message;
  EXPECT_THAT((*container)->parts(), ElementsAre(folder_ / "data.bin"));
}

TEST_F(Manifests, LinesAreNamedInErrors) {
  write("manifest.jsonl", "{\"name\":\"a\",\"file\":\"data.bin\",\"dtype\":\"u8\",\"shape\":[24]}\n{\"name\":\"b\"}\n");
  EXPECT_THAT(open_manifest(folder_ / "manifest.jsonl").error().message,
              HasSubstr("manifest.jsonl: line 2: offset 57: 'b': no 'file'"));
}

}  // namespace
}  // namespace nanscope
