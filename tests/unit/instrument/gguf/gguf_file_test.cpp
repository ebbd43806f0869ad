#include "instrument/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "instrument/files/read_budget.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/gguf/gguf_builder.h"

namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing_gguf::Builder;
using testing_gguf::Bytes;

std::string refusal(const std::vector<std::byte>& bytes) {
  const auto header = parse_gguf(bytes, "x.gguf");
  if (header) return "";
  EXPECT_THAT(header.error().message, StartsWith("x.gguf: "));
  EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
  return header.error().message;
}

Builder two_tensors() {
  Builder file;
  file.text("general.architecture", "llama").u32("llama.block_count", 2);
  file.floats("a", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.tensors.push_back({"b", {32, 2}, 8, std::vector<std::byte>(68, std::byte{1})});  // Q8_0
  return file;
}

std::int64_t integer_of(const GgufHeader& header, const char* key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? -1000 : found->second.integer().value_or(-2000);
}

TEST(GgufFiles, HoldTensorsWithTheirShapesTurned) {
  for (const std::uint32_t version : {2U, 3U}) {
    Builder file = two_tensors();
    file.version = version;
    const auto bytes = file.build();
    const auto header = parse_gguf(bytes, "x");
    ASSERT_TRUE(header.has_value()) << header.error().message;
    EXPECT_EQ(header->version, version);
    ASSERT_EQ(header->tensors.size(), 2U);
    EXPECT_EQ(header->tensors[0].name, "a");
    EXPECT_THAT(header->tensors[0].shape, ElementsAre(2, 3));
    EXPECT_EQ(header->tensors[0].type_name(), "F32");
    EXPECT_EQ(header->tensors[0].begin % 32, 0U);
    EXPECT_EQ(header->tensors[0].end - header->tensors[0].begin, 24U);
    EXPECT_EQ(header->tensors[1].count(), 64);
    EXPECT_EQ(header->tensors[1].type_name(), "Q8_0");
    EXPECT_EQ(header->tensors[1].end, bytes.size());
  }
}

TEST(GgufFiles, HoldValuesOfEveryKind) {
  Builder file;
  file.value("u8", 0, Bytes().number<std::uint8_t>(200).bytes).value("i8", 1, Bytes().number<std::int8_t>(-5).bytes);
  file.value("u16", 2, Bytes().number<std::uint16_t>(60000).bytes);
  file.value("i16", 3, Bytes().number<std::int16_t>(-300).bytes);
  file.u32("u32", 4000000000U).value("i32", 5, Bytes().number<std::int32_t>(-70000).bytes).f32("f32", 0.5F);
  file.flag("flag", true).text("text", "word");
  file.value("u64", 10, Bytes().number<std::uint64_t>(1ULL << 40).bytes);
  file.value("beyond", 10, Bytes().number<std::uint64_t>(1ULL << 63).bytes);
  file.value("i64", 11, Bytes().number<std::int64_t>(-(1LL << 40)).bytes);
  file.value("f64", 12, Bytes().number(0.1).bytes).texts("texts", {"a", "", "long"});
  file.value("numbers", 9, Bytes().number<std::uint32_t>(5).number<std::uint64_t>(2).number(7).number(-8).bytes);
  const auto bytes = file.build();
  const auto header = parse_gguf(bytes, "x");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(integer_of(*header, "u8"), 200);
  EXPECT_EQ(integer_of(*header, "i8"), -5);
  EXPECT_EQ(integer_of(*header, "u16"), 60000);
  EXPECT_EQ(integer_of(*header, "i16"), -300);
  EXPECT_EQ(integer_of(*header, "u32"), 4000000000);
  EXPECT_EQ(integer_of(*header, "i32"), -70000);
  EXPECT_EQ(integer_of(*header, "u64"), 1LL << 40);
  EXPECT_EQ(integer_of(*header, "beyond"), -2000);
  EXPECT_EQ(integer_of(*header, "i64"), -(1LL << 40));
  const auto at = [&](const char* key) { return header->metadata.find(key)->second; };
  EXPECT_EQ(at("f32").number(), 0.5);
  EXPECT_EQ(at("f64").number(), 0.1);
  EXPECT_EQ(at("i8").number(), -5);
  EXPECT_EQ(at("flag").flag(), true);
  EXPECT_EQ(at("text").text(), "word");
  EXPECT_EQ(at("text").integer(), std::nullopt);
  EXPECT_EQ(at("texts").size(), 3U);
  const auto texts = at("texts").list();
  ASSERT_TRUE(texts.has_value());
  ASSERT_EQ(texts->size(), 3U);
  EXPECT_EQ((*texts)[1].text(), "");
  EXPECT_EQ((*texts)[2].text(), "long");
  const auto numbers = at("numbers").list();
  ASSERT_TRUE(numbers.has_value());
  EXPECT_EQ((*numbers)[1].integer(), -8);
}

TEST(GgufFiles, KeepTheAlignmentThatTheyState) {
  Builder file = two_tensors();
  file.alignment = 128;
  file.u32("general.alignment", 128);
  const auto bytes = file.build();
  const auto header = parse_gguf(bytes, "x");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(header->tensors[1].begin % 128, 0U);
  Builder odd = two_tensors();
  EXPECT_THAT(refusal(odd.u32("general.alignment", 48).build()),
              HasSubstr("general.alignment: expected a power of two"));
}

TEST(GgufFiles, AreMapped) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.gguf";
  const auto bytes = two_tensors().build();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->find("general.architecture")->text(), "llama");
  EXPECT_EQ(file->find("none"), nullptr);
  EXPECT_EQ(file->bytes(file->header().tensors[1]).size(), 68U);
  EXPECT_TRUE(file->check().has_value());
}

TEST(MalformedGguf, OtherFilesAndVersionsAreNamed) {
  EXPECT_THAT(refusal({}), HasSubstr("offset 0: not a GGUF file"));
  EXPECT_THAT(refusal(std::vector<std::byte>(64)), HasSubstr("not a GGUF file"));
  Builder file = two_tensors();
  file.version = 1;
  EXPECT_THAT(refusal(file.build()), HasSubstr("offset 4: version 1, expected 2 or 3: convert"));
  file.version = 4;
  EXPECT_THAT(refusal(file.build()), HasSubstr("version 4, expected 2 or 3"));
  file.version = 3U << 24;
  EXPECT_THAT(refusal(file.build()), HasSubstr("big-endian"));
}

TEST(MalformedGguf, SizesAreCheckedBeforeUse) {
  const auto huge = [](std::uint32_t kind, const std::vector<std::byte>& bytes) {
    return refusal(Builder().value("k", kind, bytes).build());
  };
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  EXPECT_THAT(huge(8, Bytes().number(kMost).bytes),
              HasSubstr("a text of 18446744073709551615 bytes runs past the end"));
  EXPECT_THAT(huge(9, Bytes().number<std::uint32_t>(8).number(kMost).bytes), HasSubstr("items runs past the end"));
  EXPECT_THAT(huge(9, Bytes().number<std::uint32_t>(12).number(kMost / 8 + 2).bytes), HasSubstr("items runs past"));
  EXPECT_THAT(huge(13, {}), HasSubstr("a value of type 13, expected 0 to 12"));
  Bytes nested;
  for (int i = 0; i < 20; ++i) nested.number<std::uint32_t>(9).number<std::uint64_t>(1);
  EXPECT_THAT(huge(9, nested.number<std::uint32_t>(0).number<std::uint64_t>(0).bytes), HasSubstr("lists within more"));
  auto counts = Builder().build();
  counts[15] = std::byte{0xFF};
  EXPECT_THAT(refusal(counts), HasSubstr("runs past the end of the file at 24"));
}

TEST(MalformedGguf, TensorsLieInTheFile) {
  const auto of = [](std::vector<std::uint64_t> shape, std::uint32_t type, std::size_t bytes) {
    Builder file;
    file.tensors.push_back({"t", std::move(shape), type, std::vector<std::byte>(bytes)});
    return refusal(file.build());
  };
  EXPECT_EQ(of({32}, 8, 34), "");
  EXPECT_THAT(of({32}, 8, 33), HasSubstr("tensor 't' of 1 blocks of 34 bytes at offset 64 ends beyond the file at 97"));
  EXPECT_THAT(of({48}, 8, 68), HasSubstr("rows of 48 elements, which are no whole blocks of 32 of Q8_0"));
  EXPECT_THAT(of({1ULL << 32, 1ULL << 32}, 0, 4), HasSubstr("a product below 2^63"));
  EXPECT_THAT(of({0}, 0, 4), HasSubstr("extent of 0"));
  EXPECT_THAT(of({1ULL << 63}, 0, 4), HasSubstr("extent of 9223372036854775808"));
  EXPECT_THAT(of({1, 1, 1, 1, 1}, 0, 4), HasSubstr("5 dimensions, expected at most 4"));
  EXPECT_THAT(of({1ULL << 62}, 0, 4), HasSubstr("ends beyond the file"));
  EXPECT_EQ(of({7}, 99, 4), "");  // another type: its size is not known
}

TEST(MalformedGguf, TensorsDoNotOverlap) {
  auto bytes = two_tensors().build();
  const auto header = parse_gguf(bytes, "x");
  ASSERT_TRUE(header.has_value());
  // The offset of the second tensor stands before the padding, as the last eight bytes of what is listed.
  std::size_t offset = header->tensors[0].begin;
  while (bytes[offset - 8] != std::byte{32}) --offset;
  bytes[offset - 8] = std::byte{0};
  EXPECT_THAT(refusal(bytes), HasSubstr("tensor 'b' begins at offset"));
  bytes[offset - 8] = std::byte{8};
  EXPECT_THAT(refusal(bytes), HasSubstr("begins at data offset 8, which is no multiple of 32"));
  bytes[offset - 1] = std::byte{0x80};
  bytes[offset - 8] = std::byte{0};
  EXPECT_THAT(refusal(bytes), HasSubstr("begins beyond the end of the file"));
}

TEST(MalformedGguf, NamesOccurOnce) {
  EXPECT_THAT(refusal(Builder().u32("k", 1).u32("k", 2).build()), HasSubstr("the key 'k' is there twice"));
  Builder file;
  file.floats("t", {1}, {1}).floats("t", {1}, {1});
  EXPECT_THAT(refusal(file.build()), HasSubstr("the tensor 't' is there twice"));
}

/// What is accepted must be readable.
void read_all(const std::vector<std::byte>& bytes) {
  const auto header = parse_gguf(bytes, "x.gguf");
  if (!header) {
    ASSERT_EQ(header.error().message.find('\n'), std::string::npos);
    return;
  }
  for (const auto& [key, value] : header->metadata) {
    const auto list = value.list();
    for (const GgufValue& one : list.value_or(std::vector<GgufValue>{value})) {
      (void)one.number();
      (void)one.text();
      (void)one.flag();
    }
  }
  for (const GgufTensor& tensor : header->tensors) {
    if (tensor.type == nullptr) continue;
    ASSERT_LE(tensor.end, bytes.size());
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    decode_blocks(*tensor.type, std::span(bytes).subspan(tensor.begin, tensor.end - tensor.begin), values);
  }
}

TEST(MalformedGguf, MutationsAreRefusedOrRead) {
  Builder file = two_tensors();
  file.texts("tokenizer.ggml.tokens", {"a", "b", "c"}).f32("llama.rope.freq_base", 10000).flag("f", false);
  const auto whole = file.build();
  for (std::size_t size = 0; size < whole.size(); ++size)
    read_all(std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
  std::mt19937 random(7);
  constexpr std::array<std::byte, 6> kHard = {std::byte{0},    std::byte{1},    std::byte{9},
                                              std::byte{0x7F}, std::byte{0x80}, std::byte{0xFF}};
  for (int round = 0; round < 20000; ++round) {
    auto bytes = whole;
    for (unsigned i = 0; i < 1 + random() % 4; ++i) {
      std::byte& one = bytes[random() % bytes.size()];
      one = random() % 2 == 0 ? kHard[random() % kHard.size()] : static_cast<std::byte>(random() & 255U);
    }
    read_all(bytes);
  }
}

}  // namespace
}  // namespace nanscope
