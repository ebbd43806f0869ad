#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::byte> file(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string refusal(const std::vector<std::byte>& bytes) {
  const auto header = parse_safetensors(bytes, "x.safetensors");
  if (header) return "";
  EXPECT_THAT(header.error().message, StartsWith("x.safetensors: "));
  EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
  return header.error().message;
}

/// A header of one tensor "t" with these fields.
std::string refusal_of(const std::string& fields, std::size_t data_bytes) {
  return refusal(file("{\"t\":{" + fields + "}}", data_bytes));
}

TEST(MalformedSafetensors, LengthsAreCheckedBeforeUse) {
  EXPECT_THAT(refusal({}), HasSubstr("0 bytes, expected at least 8"));
  EXPECT_THAT(refusal(std::vector<std::byte>(7)), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal(std::vector<std::byte>(64, std::byte{0xFF})), HasSubstr("header length 18446744073709551615"));
  auto bytes = file("{}", 0);
  bytes[0] = std::byte{3};
  EXPECT_THAT(refusal(bytes), HasSubstr("header of 3 bytes at offset 8 runs past the end of the file at 10"));
  EXPECT_EQ(refusal(file("{}", 0)), "");
}

TEST(MalformedSafetensors, HeaderMustBeAJsonObject) {
  EXPECT_THAT(refusal(file("[]", 0)), HasSubstr("not a JSON object"));
  for (const char* text : {"", "{", "{}}", "nul", "{\"a\":\xFF}", "{'a':1}", "{\"a\":NaN}"}) {
    EXPECT_THAT(refusal(file(text, 0)), HasSubstr("not JSON here")) << text;
  }
  EXPECT_THAT(refusal(file("{\"a\":NaN}", 0)), HasSubstr("header: offset 13: "));
  EXPECT_THAT(refusal(file(std::string(2'000'000, '['), 0)), HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal(file(R"({"__metadata__":3})", 0)), HasSubstr("__metadata__ is not"));
  EXPECT_THAT(refusal(file(R"({"__metadata__":{"a":3}})", 0)), HasSubstr("__metadata__ holds"));
}

TEST(MalformedSafetensors, NamesMayOccurOnce) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal(file("{\"a\":" + tensor + ",\"a\":" + tensor + "}", 1)), HasSubstr("names 'a' twice"));
  EXPECT_THAT(refusal(file(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("names 'dtype' twice"));
}

TEST(MalformedSafetensors, FieldsAreChecked) {
  EXPECT_THAT(refusal(file(R"({"t":3})", 0)), HasSubstr("tensor 't': not a JSON object"));
  EXPECT_THAT(refusal_of(R"("shape":[1],"data_offsets":[0,1])", 1), HasSubstr("no dtype"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","data_offsets":[0,1])", 1), HasSubstr("no valid shape"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[1])", 1), HasSubstr("no pair of data_offsets"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[1],"data_offsets":[0])", 1), HasSubstr("no pair of data_offsets"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1), HasSubstr("no ascending pair"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[1],"data_offsets":[0,1.0])", 1), HasSubstr("no ascending pair"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
              HasSubstr("shape holds something else"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1])", 1),
              HasSubstr("shape holds something else"));
}

TEST(MalformedSafetensors, SizesMustAgree) {
  EXPECT_THAT(refusal_of(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4), HasSubstr("4 bytes, expected 8"));
  EXPECT_THAT(refusal_of(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2), HasSubstr("expected another number"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
              HasSubstr("too many elements"));
  // Beside a 0 too: who counts rows multiplies the others.
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0])", 0),
              HasSubstr("too many elements"));
  EXPECT_THAT(refusal_of(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])", 0),
              HasSubstr("too many elements"));
  EXPECT_THAT(refusal_of(R"("dtype":"F64","shape":[288230376151711744],"data_offsets":[0,0])", 0),
              HasSubstr("0 bytes, expected another number"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])", 8), HasSubstr("(truncated?)"));
  EXPECT_THAT(refusal_of(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 3), HasSubstr("2 bytes behind the last"));
}

TEST(MalformedSafetensors, TensorsMayNeitherOverlapNorLeaveHoles) {
  const std::string head =
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":)";
  EXPECT_THAT(refusal(file(head + "[1,3]}}", 3)), HasSubstr("tensor 'b': begins at data offset 1, inside"));
  EXPECT_THAT(refusal(file(head + "[3,5]}}", 5)), HasSubstr("tensor 'b': begins at data offset 3, leaving a hole"));
  EXPECT_EQ(refusal(file(head + "[2,4]}}", 4)), "");
}

TEST(MalformedSafetensors, UnknownDtypesAreKeptAsBytes) {
  const auto bytes = file(R"({"t":{"dtype":"F3_NEW","shape":[5],"data_offsets":[0,2]}})", 2);
  const auto header = parse_safetensors(bytes, "x");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_FALSE(header->entries[0].known);
  EXPECT_EQ(header->entries[0].dtype, "F3_NEW");
  EXPECT_EQ(safetensors_values(header->entries[0], {}).error().message,
            "tensor 't': dtype F3_NEW cannot be read as numbers");
}

}  // namespace
}  // namespace nanscope
