#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "instrument/files/file.h"
#include "instrument/tokenizer/byte_alphabet.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

using nlohmann::json;

const std::filesystem::path kSource = NANSCOPE_SOURCE_DIR;
const std::filesystem::path kOwn = kSource / "instrument/corpus/tokenizer.json";

json read_json(const std::filesystem::path& path) {
  const auto bytes = read_file(path, 1 << 24);
  return bytes ? json::parse(as_text(*bytes)) : json();
}

/// The project's tokenizer.json with the changes a golden group asks for.
json patched(json root, const json& patch) {
  for (const auto& [key, value] : patch.items()) {
    if (key == "model_merges") {
      for (json& merge : root["model"]["merges"]) {
        const auto text = merge.get<std::string>();
        merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
      }
    } else if (key.starts_with("model_")) {
      root["model"][key.substr(6)] = value;
    } else {
      root[key] = value;
    }
  }
  return root;
}

/// golden_encodings.json was made with the `tokenizers` package 0.23.3 from PyPI: for each group
/// Tokenizer.from_str() of the project's tokenizer.json with the group's "patch" applied (the split
/// patterns of Llama-3 and Qwen2, NFC, added tokens with their flags ...), then
/// encode(text, add_special_tokens=False).ids of each text.
class GoldenEncodings : public testing::TestWithParam<std::size_t> {};

TEST_P(GoldenEncodings, AreReproduced) {
  const json groups = read_json(kSource / "tests/unit/instrument/tokenizer/golden_encodings.json");
  ASSERT_LT(GetParam(), groups.size());
  const json& group = groups[GetParam()];
  SCOPED_TRACE(group["name"].get<std::string>());
  const json root = patched(read_json(kOwn), group.value("patch", json::object()));
  const auto tokenizer = Tokenizer::parse(root.dump(), "golden");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  ASSERT_FALSE(group["cases"].empty());
  for (const json& entry : group["cases"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(*ids, entry["ids"].get<std::vector<std::int32_t>>()) << json(text).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, GoldenEncodings, testing::Range<std::size_t>(0, 8));

class OwnTokenizer : public testing::Test {
 protected:
  Tokenizer tokenizer_ = Tokenizer::load(kOwn).value();
};

TEST_F(OwnTokenizer, HasTheByteOrderOfGpt2) {
  EXPECT_EQ(tokenizer_.vocab_size(), 512U);
  EXPECT_EQ(tokenizer_.token_text(0), "!");
  EXPECT_EQ(tokenizer_.token_text(93), "~");
  EXPECT_EQ(tokenizer_.token_text(94), "\xA1");
  EXPECT_EQ(tokenizer_.token_text(188), std::string_view("\0", 1));
  EXPECT_EQ(tokenizer_.token_text(220), " ");  // id 220 is the space in GPT-2's vocabulary too
  EXPECT_EQ(tokenizer_.token_text(255), "\xAD");
  EXPECT_EQ(tokenizer_.token_text(511), "<|end|>");
  EXPECT_EQ(tokenizer_.token_text(512), "");
  EXPECT_EQ(tokenizer_.token_text(-1), "");
  EXPECT_EQ(tokenizer_.added_token("<|end|>"), 511);
  EXPECT_EQ(tokenizer_.added_token("<|begin|>"), std::nullopt);
}

TEST_F(OwnTokenizer, IsTheOneInsideTheBinary) {
  const auto shipped = load_shipped_tokenizer();
  ASSERT_TRUE(shipped.has_value()) << shipped.error().message;
  ASSERT_EQ(shipped->vocab_size(), tokenizer_.vocab_size());
  for (std::int32_t id = 0; id < 512; ++id) EXPECT_EQ(shipped->token_text(id), tokenizer_.token_text(id));
}

TEST_F(OwnTokenizer, DecodesWhatItEncoded) {
  const auto corpus = read_file(kSource / "instrument/corpus/lighthouse.txt", 1 << 20);
  ASSERT_TRUE(corpus.has_value());
  const auto ids = tokenizer_.encode(as_text(*corpus));
  ASSERT_TRUE(ids.has_value());
  EXPECT_LT(ids->size(), as_text(*corpus).size() / 3);
  EXPECT_EQ(tokenizer_.decode(*ids), as_text(*corpus));
}

TEST_F(OwnTokenizer, KeepsEveryByteOfInvalidUtf8) {
  std::vector<std::string> texts = {"\xFF", "\xC3", "ab\xC3(\xE2\x82 moons\xF0\x9F", "\xED\xA0\x80",
                                    "\xC0\xAF tides\x80"};
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text(random() % 40, '\0');
    // Mostly lead and continuation bytes, so that broken sequences of all kinds occur.
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 128 : 128 + random() % 128);
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    const auto ids = tokenizer_.encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(tokenizer_.decode(*ids), text);
  }
}

TEST_F(OwnTokenizer, LeavesSpecialTokensOutWhenAsked) {
  const std::vector<std::int32_t> ids = {0, 511, 0};
  EXPECT_EQ(tokenizer_.decode(ids), "!<|end|>!");
  EXPECT_EQ(tokenizer_.decode(ids, /*skip_special=*/true), "!!");
}

TEST_F(OwnTokenizer, TakesNoQuadraticTimeForOneLongWord) {
  const std::string text(2'000'000, 'o');
  const auto ids = tokenizer_.encode(text);
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(tokenizer_.decode(*ids), text);
}

TEST(ByteAlphabet, IsOneToOne) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes += static_cast<char>(byte);
    EXPECT_EQ(byte_of_rank(byte_rank(static_cast<std::uint8_t>(byte))), byte);
  }
  EXPECT_EQ(from_alphabet(to_alphabet(bytes)), bytes);
  EXPECT_EQ(to_alphabet(" "), "\u0120");
  EXPECT_EQ(to_alphabet("\n"), "\u010A");
  EXPECT_EQ(to_alphabet("\xAD"), "\u0143");
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  for (const char* text : {" ", "\n", "\u00AD", "\u0144", "\u4E2D", "\xFF", "\xC4", "a\x80", "\u00A0"}) {
    EXPECT_EQ(from_alphabet(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace nanscope
