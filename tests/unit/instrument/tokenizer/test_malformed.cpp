#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "instrument/files/file.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

json own() {
  const auto bytes =
      read_file(std::filesystem::path(NANSCOPE_SOURCE_DIR) / "instrument/corpus/tokenizer.json", 1 << 24);
  return bytes ? json::parse(as_text(*bytes)) : json();
}

/// The message about a broken file; empty when it was accepted.
std::string refusal(const std::string& text) {
  const auto tokenizer = Tokenizer::parse(text, "broken.json");
  return tokenizer ? "" : tokenizer.error().message;
}

std::string refusal_of(const char* pointer, const json& value) {
  json root = own();
  root[json::json_pointer(pointer)] = value;
  return refusal(root.dump());
}

TEST(MalformedTokenizer, IsRefusedInOneLineThatNamesTheFile) {
  for (const std::string text :
       {"", "{", "[]", "3", "{}", "{\"model\":3}", "\xFF", "{\"model\":{\"type\":\"Unigram\"}}"}) {
    const std::string message = refusal(text);
    EXPECT_THAT(message, StartsWith("broken.json: ")) << text;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("not a JSON"));
}

TEST(MalformedTokenizer, VocabularyIsChecked) {
  EXPECT_THAT(refusal_of("/model/vocab", json::array()), HasSubstr("model.vocab is not a JSON object"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", -1), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", 1e9), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", 4'000'000'000), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", "7"), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", 7), HasSubstr("id 7 is given to two tokens"));
  EXPECT_THAT(refusal_of("/model/vocab", {{"!", 0}}), HasSubstr("no token for byte 0"));
}

TEST(MalformedTokenizer, MergesAreChecked) {
  EXPECT_THAT(refusal_of("/model/merges", nullptr), HasSubstr("model.merges is not a JSON array"));
  EXPECT_THAT(refusal_of("/model/merges/3", "ab"), HasSubstr("merge 3 is 'ab'"));
  EXPECT_THAT(refusal_of("/model/merges/3", "a b c"), HasSubstr("merge 3 is 'a b c'"));
  EXPECT_THAT(refusal_of("/model/merges/3", "q z"), HasSubstr("merge 3 needs 'qz', which is no token"));
  EXPECT_THAT(refusal_of("/model/merges/3", {"a", 1}), HasSubstr("merge 3 is neither"));
  EXPECT_THAT(refusal_of("/model/merges/3", own()["model"]["merges"][0]), HasSubstr("merge 3 occurs twice"));
}

TEST(MalformedTokenizer, UnsupportedPartsAreNamed) {
  EXPECT_THAT(refusal_of("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer '' is not supported"));
  EXPECT_THAT(refusal_of("/pre_tokenizer/type", "Metaspace"), HasSubstr("'Metaspace' is not supported"));
  EXPECT_THAT(refusal_of("/pre_tokenizer", {{"type", "Digits"}}), HasSubstr("does not end in ByteLevel"));
  EXPECT_THAT(
      refusal_of("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "a)"}}}}),
      HasSubstr("split pattern is wrong at offset 1"));
  EXPECT_THAT(refusal_of("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Contiguous"}}),
              HasSubstr("'Contiguous' is not supported"));
  EXPECT_THAT(
      refusal_of("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "\\b"}}}}),
      HasSubstr("split pattern has \\b, which is not supported"));
  EXPECT_THAT(refusal_of("/normalizer", {{"type", "NFKC"}}), HasSubstr("normalizer 'NFKC' is not supported"));
  EXPECT_THAT(refusal_of("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder 'WordPiece' is not supported"));
  EXPECT_THAT(refusal_of("/model/dropout", 0.5), HasSubstr("dropout"));
  EXPECT_THAT(refusal_of("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
}

TEST(MalformedTokenizer, AddedTokensAreChecked) {
  EXPECT_THAT(refusal_of("/added_tokens", 3), HasSubstr("added_tokens is not a JSON array"));
  EXPECT_THAT(refusal_of("/added_tokens/0/content", ""), HasSubstr("no content"));
  EXPECT_THAT(refusal_of("/added_tokens/0/id", nullptr), HasSubstr("no id"));
  EXPECT_THAT(refusal_of("/added_tokens/0/id", 5), HasSubstr("id 5 is given to two tokens"));
  EXPECT_THAT(refusal_of("/added_tokens/0/content", "!"), HasSubstr("the vocabulary says 0"));
  EXPECT_THAT(refusal_of("/added_tokens/0/content", std::string(1025, 'x')), HasSubstr("is longer than 1024 bytes"));
}

TEST(MalformedTokenizer, PatternThatBacktracksWithoutEndGivesUp) {
  json root = own();
  const json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a+)+(?![ab])"}}}};
  root["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {split, {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  const auto tokenizer = Tokenizer::parse(root.dump(), "slow.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto ids = tokenizer->encode(std::string(64, 'a') + "b");
  ASSERT_FALSE(ids.has_value());
  EXPECT_THAT(ids.error().message, HasSubstr("match limit exceeded"));
}

TEST(MalformedTokenizer, MissingFileIsNamed) {
  const auto tokenizer = Tokenizer::load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().message, "/nonexistent/tokenizer.json: cannot open: No such file or directory");
  EXPECT_THAT(Tokenizer::load("/dev/null").error().message, HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace nanscope
