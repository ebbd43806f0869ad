#include "instrument/dump/containers/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "instrument/files/file.h"
#include "tests/zip_builder.h"

namespace nanscope {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Entries = std::vector<ZipEntry>;

Result<ZipArchive> read(const std::string& bytes) {
  return ZipArchive::read({"x.zip", std::as_bytes(std::span(bytes)), nullptr});
}

std::string zip_refusal(const std::string& bytes) {
  const auto archive = read(bytes);
  if (archive) return "";
  EXPECT_THAT(archive.error().message, StartsWith("x.zip: offset "));
  EXPECT_EQ(archive.error().message.find('\n'), std::string::npos);
  return archive.error().message;
}

std::string zip_refusal(const Entries& entries) { return zip_refusal(ZipBuilder(entries).bytes); }

/// One member with a field that is wrong.
template <class Change>
std::string zip_refusal_of(Change change) {
  ZipEntry entry{.name = "a", .data = "content"};
  change(entry);
  return zip_refusal(Entries{entry});
}

TEST(ZipArchives, MembersAreFoundAndRead) {
  const std::string text(1000, 'x');
  const ZipBuilder zip(
      {{.name = "b", .data = "stored"},
       {.name = "folder/", .data = ""},
       {.name = "a", .data = ZipBuilder::deflated(text), .method = 8, .size = 1000, .crc = ZipBuilder::crc_of(text)}});
  const auto archive = read(zip.bytes);
  ASSERT_TRUE(archive.has_value()) << archive.error().message;
  ASSERT_EQ(archive->members().size(), 2U);
  EXPECT_EQ(archive->find("folder/"), nullptr);
  EXPECT_EQ(archive->find("c"), nullptr);
  const auto stored = archive->content(*archive->find("b"));
  EXPECT_EQ(as_text(stored->bytes), "stored");
  EXPECT_EQ(reinterpret_cast<const char*>(stored->bytes.data()), zip.bytes.data() + 31);  // a view, no copy
  EXPECT_EQ(as_text(archive->content(*archive->find("a"))->bytes), text);
  EXPECT_EQ(as_text(archive->beginning(*archive->find("a"), 10)->bytes), text.substr(0, 10));
  EXPECT_EQ(as_text(archive->beginning(*archive->find("b"), 10)->bytes), "stored");
}

TEST(ZipArchives, NamesStayInsideAndOccurOnce) {
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = "../../etc/passwd"; }),
              HasSubstr("the member's name '../../etc/passwd' leaves its folder"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = "a/../../b"; }), HasSubstr("leaves its folder"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = "/../b"; }), HasSubstr("leaves its folder"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = "//"; }), HasSubstr("is empty"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = "a\\b"; }), HasSubstr("holds a backslash"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = "C:b"; }), HasSubstr("names a drive"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.name = std::string("a\0b", 3); }), HasSubstr("holds a NUL"));
  EXPECT_EQ(zip_refusal_of([](ZipEntry& e) { e.name = "..a/b..c/..."; }), "");
  EXPECT_THAT(zip_refusal(Entries{{.name = "a", .data = "1"}, {.name = "a", .data = "2"}}),
              HasSubstr("a second member named 'a'"));
}

TEST(ZipArchives, OtherKindsAreRefusedByName) {
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.flags = 1; }), HasSubstr("the member 'a' is encrypted"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.flags = 1 << 13; }), HasSubstr("is encrypted"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.method = 14; }),
              HasSubstr("compressed by method 14, expected 0 (stored)"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.disk = 1; }), HasSubstr("a member on another disk"));
  ZipBuilder split(Entries{{.name = "a", .data = "content"}});
  split.bytes[split.end_begin + 4] = 1;
  EXPECT_THAT(zip_refusal(split.bytes), HasSubstr("split over several files"));
}

TEST(ZipArchives, LocalHeadersMustAgreeWithTheDirectory) {
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.local_name = "b"; }), HasSubstr("the local header of 'b' differs"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.local_shift = 1; }),
              HasSubstr("offset 1: no local header of the member 'a'"));
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.local_shift = 1 << 30; }), HasSubstr("no local header"));
  for (const std::size_t field : {8U, 14U, 18U, 22U}) {
    ZipBuilder zip(Entries{{.name = "a", .data = "content"}});
    zip.bytes[field] = static_cast<char>(zip.bytes[field] ^ 8);
    EXPECT_THAT(zip_refusal(zip.bytes), HasSubstr("differs from the directory's entry")) << field;
  }
}

TEST(ZipArchives, MembersStayInsideTheFileAndApart) {
  EXPECT_THAT(zip_refusal_of([](ZipEntry& e) { e.size = 5; }), HasSubstr("stored in 7 bytes, expected its size of 5"));
  ZipBuilder longer(Entries{{.name = "a", .data = "content"}});
  for (const std::uint64_t at :
       {std::uint64_t{18}, std::uint64_t{22}, longer.directory_begin + 20, longer.directory_begin + 24}) {
    longer.bytes[at] = 8;
  }
  EXPECT_THAT(zip_refusal(longer.bytes), HasSubstr("of 8 bytes runs into the directory at"));
  // Both entries of the directory point to the first member.
  const Entries twins = {{.name = "a", .data = "1"}, {.name = "b", .data = "1", .local_name = "a", .local_shift = -32}};
  EXPECT_THAT(zip_refusal(twins), HasSubstr("differs from the directory"));
  // An inner archive member: "b" lies in the data of "a".
  const std::string inner = ZipBuilder(Entries{{.name = "b", .data = "1"}}).bytes.substr(0, 32);
  const Entries nested = {{.name = "a", .data = inner}, {.name = "b", .data = "1", .local_shift = -32}};
  EXPECT_THAT(zip_refusal(nested), HasSubstr("a member that begins inside the one before it"));
}

TEST(ZipArchives, BombsAreRefusedBeforeTheyUnpack) {
  const auto claim = [](std::uint32_t size) {
    return zip_refusal_of([&](ZipEntry& e) {
      e.method = 8;
      e.size = size;
    });
  };
  EXPECT_THAT(claim(4'000'000'000),
              HasSubstr("claims to unpack from 7 to 4000000000 bytes, expected at most 1032 to 1"));
  // Honest ratios, too much in all.
  const std::string zeros = ZipBuilder::deflated(std::string(std::size_t{1} << 24, '\0'));
  Entries many;
  for (int i = 0; i < 80; ++i) {
    many.push_back({.name = std::to_string(i), .data = zeros, .method = 8, .size = 1U << 24});
  }
  EXPECT_THAT(zip_refusal(many), HasSubstr("members unpack to more than"));
}

TEST(ZipArchives, UnpackingGivesExactlyWhatTheDirectorySays) {
  const std::string text(1000, 'x');
  const auto content = [&](std::uint32_t size, std::uint32_t crc, const std::string& data) {
    const ZipBuilder zip(Entries{{.name = "a", .data = data, .method = 8, .size = size, .crc = crc}});
    const auto archive = read(zip.bytes);
    if (!archive) return archive.error().message;
    const auto got = archive->content(archive->members()[0]);
    return got ? std::string() : got.error().message;
  };
  const std::string data = ZipBuilder::deflated(text);
  const std::uint32_t crc = ZipBuilder::crc_of(text);
  EXPECT_EQ(content(1000, crc, data), "");
  EXPECT_THAT(content(999, crc, data), HasSubstr("does not unpack to the 999 bytes"));
  EXPECT_THAT(content(1001, crc, data), HasSubstr("does not unpack to the 1001 bytes"));
  EXPECT_THAT(content(1000, crc + 1, data), HasSubstr("has another checksum"));
  EXPECT_THAT(content(1000, crc, data + "x"), HasSubstr("does not unpack"));
  EXPECT_THAT(content(1000, crc, "\xff\xff" + data), HasSubstr("does not unpack"));
}

TEST(ZipArchives, EndRecordsAreChecked) {
  EXPECT_THAT(zip_refusal(std::string()), HasSubstr("offset 0: the file ends without a zip directory"));
  EXPECT_THAT(zip_refusal("PK\x03\x04"), HasSubstr("the file ends without a zip directory"));
  const ZipBuilder zip(Entries{{.name = "a", .data = "content"}});
  EXPECT_THAT(zip_refusal("x" + zip.bytes), HasSubstr("expected its end here, before its end record"));
  EXPECT_THAT(zip_refusal(zip.bytes + "x"), HasSubstr("the file ends without a zip directory"));
  std::string more = zip.bytes;
  more[zip.end_begin + 8] = more[zip.end_begin + 10] = 2;
  EXPECT_THAT(zip_refusal(more), HasSubstr("2 members in a directory of"));
  std::string fewer = zip.bytes;
  fewer[zip.end_begin + 8] = fewer[zip.end_begin + 10] = 0;
  EXPECT_THAT(zip_refusal(fewer), HasSubstr("more bytes in the directory than its members"));
}

/// zip64: an end record and a locator before the old end record, which then is not believed.
std::string with_end64(const ZipBuilder& zip, std::uint64_t members, std::uint64_t bytes, std::uint64_t begin) {
  std::string out = zip.bytes.substr(0, zip.end_begin);
  ZipBuilder::number(0x06064b50, 4, out);
  ZipBuilder::number(44, 8, out);
  ZipBuilder::number(0, 12, out);
  ZipBuilder::number(members, 8, out);
  ZipBuilder::number(members, 8, out);
  ZipBuilder::number(bytes, 8, out);
  ZipBuilder::number(begin, 8, out);
  ZipBuilder::number(0x07064b50, 4, out);
  ZipBuilder::number(0, 4, out);
  ZipBuilder::number(zip.end_begin, 8, out);
  ZipBuilder::number(1, 4, out);
  return out + zip.bytes.substr(zip.end_begin);
}

TEST(ZipArchives, WideNumbersAreReadAndChecked) {
  std::string field;
  ZipBuilder::number(1, 2, field);
  ZipBuilder::number(8, 2, field);
  ZipBuilder::number(0, 8, field);
  ZipBuilder zip(Entries{{.name = "a", .data = "content", .extra = field}});
  zip.bytes.replace(zip.directory_begin + 42, 4, "\xff\xff\xff\xff");  // the local header's offset is in the field
  const std::uint64_t bytes = zip.end_begin - zip.directory_begin;
  EXPECT_EQ(zip_refusal(with_end64(zip, 1, bytes, zip.directory_begin)), "");
  EXPECT_THAT(zip_refusal(with_end64(zip, 1, bytes + 1, zip.directory_begin)),
              HasSubstr("a directory beyond the file's end"));
  EXPECT_THAT(zip_refusal(with_end64(zip, 1, ~std::uint64_t{0}, 1)), HasSubstr("a directory beyond the file's end"));
  EXPECT_THAT(zip_refusal(with_end64(zip, std::uint64_t{1} << 63, bytes, zip.directory_begin)),
              HasSubstr("9223372036854775808 members"));
  zip.bytes[zip.directory_begin + 47 + 2] = 4;  // the field is too short for an offset
  EXPECT_THAT(zip_refusal(with_end64(zip, 1, bytes, zip.directory_begin)), HasSubstr("a zip64 field without the size"));
  zip.bytes[zip.directory_begin + 47 + 2] = 9;
  EXPECT_THAT(zip_refusal(with_end64(zip, 1, bytes, zip.directory_begin)),
              HasSubstr("an extra field that runs past its entry"));
}

}  // namespace
}  // namespace nanscope
