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
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("nested too deeply"));
}

TEST(MalformedTokenizer, VocabularyIsChecked) {
  EXPECT_THAT(refusal_of("/model/vocab", json::array()), HasSubstr("model.vocab is not a JSON object"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", -1), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", 1e9), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", 4'000'000'000), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", "7"), HasSubstr("'zz' has no id"));
  EXPECT_THAT(refusal_of("/model/vocab/zz", 7), HasSubstr("id 7 is given to two tokens"));
  EXPECT_THAT(refusal_of("/model/vocab", {{"zz", 0}}), HasSubstr("no byte has a token"));
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
  EXPECT_THAT(refusal_of("/pre_tokenizer", nullptr), HasSubstr("'ByteLevel' is not supported without"));
  EXPECT_THAT(refusal_of("/pre_tokenizer/type", "Whitespace"),
              HasSubstr("pre_tokenizer 'Whitespace' is not supported"));
  EXPECT_THAT(refusal_of("/pre_tokenizer", {{"type", "Digits"}}), HasSubstr("'ByteLevel' is not supported without"));
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

/// The refusal of llama.json with another value at a place.
std::string llama_refusal(const char* pointer, const json& value) {
  static const json llama = [] {
    const auto bytes =
        read_file(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/tokenizer/checkpoints/llama.json", 1 << 24);
    return bytes ? json::parse(as_text(*bytes)) : json();
  }();
  json root = llama;
  root[json::json_pointer(pointer)] = value;
  return refusal(root.dump());
}

TEST(MalformedTokenizer, UnsupportedNormalizersAreNamed) {
  const auto replace = [](const json& pattern, const char* content) {
    return llama_refusal("/normalizer", {{"type", "Replace"}, {"pattern", pattern}, {"content", content}});
  };
  EXPECT_THAT(replace({{"Regex", " {2,}"}}, " "), HasSubstr("Replace of '' by ' ' is not supported"));
  EXPECT_THAT(replace({{"String", "``"}}, "\""), HasSubstr("Replace of '``' by '\"' is not supported"));
  EXPECT_THAT(replace({{"String", " "}}, ""), HasSubstr("Replace of ' ' by '' is not supported"));
  EXPECT_EQ(replace({{"String", " "}}, "\u2581"), "");
  EXPECT_THAT(llama_refusal("/normalizer", {{"type", "Prepend"}, {"prepend", "ab"}}), HasSubstr("Prepend of 'ab'"));
  EXPECT_THAT(llama_refusal("/normalizer/normalizers/0", {{"type", "Sequence"}, {"normalizers", json::array()}}),
              HasSubstr("normalizer 'Sequence' is not supported"));
  EXPECT_THAT(llama_refusal("/normalizer/normalizers", json(17, {{"type", "NFC"}})), HasSubstr("more than 16 steps"));
}

TEST(MalformedTokenizer, UnsupportedMetaspaceIsNamed) {
  const json good = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  const auto with = [&](const json& more) {
    json node = good;
    node.update(more);
    return llama_refusal("/pre_tokenizer", node);
  };
  EXPECT_EQ(with(json::object()), "");
  EXPECT_THAT(with({{"replacement", "__"}}), HasSubstr("replacement '__' of Metaspace is not one character"));
  EXPECT_THAT(with({{"prepend_scheme", "last"}}), HasSubstr("prepend_scheme 'last' of Metaspace is not supported"));
  EXPECT_THAT(with({{"prepend_scheme", 3}}), HasSubstr("prepend_scheme '' of Metaspace is not supported"));
  EXPECT_THAT(with({{"add_prefix_space", false}}), HasSubstr("contradicts its prepend_scheme 'always'"));
  EXPECT_EQ(with({{"add_prefix_space", false}, {"prepend_scheme", "never"}}), "");
  const auto sequence = [](const json& first, const json& second) {
    return llama_refusal("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {first, second}}});
  };
  const json digits = {{"type", "Digits"}};
  EXPECT_EQ(sequence(good, digits), "");
  EXPECT_THAT(sequence(digits, good), HasSubstr("Metaspace behind another is not supported"));
  EXPECT_THAT(sequence(good, good), HasSubstr("Metaspace behind another is not supported"));
  EXPECT_THAT(sequence(good, {{"type", "ByteLevel"}}), HasSubstr("ByteLevel behind Metaspace is not supported"));
  EXPECT_THAT(llama_refusal("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json(17, digits)}}),
              HasSubstr("pre_tokenizer has more than 16 steps"));
}

TEST(MalformedTokenizer, UnsupportedDecodersAreNamed) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  const json bytes = {{"type", "ByteFallback"}};
  const json fuse = {{"type", "Fuse"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const auto steps = [](const json& decoders) {
    return llama_refusal("/decoder", {{"type", "Sequence"}, {"decoders", decoders}});
  };
  EXPECT_EQ(steps({replace, replace, bytes, fuse, strip}), "");
  EXPECT_EQ(steps({replace, fuse}), "");
  EXPECT_EQ(llama_refusal("/decoder", replace), "");
  EXPECT_THAT(llama_refusal("/decoder", nullptr), HasSubstr("decoder '' is not supported without pre_tokenizer"));
  EXPECT_THAT(llama_refusal("/decoder/type", "Metaspace"), HasSubstr("decoder 'Metaspace' is not supported without"));
  EXPECT_THAT(steps({bytes, replace}), HasSubstr("decoder 'Replace' in this place is not supported"));
  EXPECT_THAT(steps({bytes, bytes}), HasSubstr("decoder 'ByteFallback' in this place is not supported"));
  EXPECT_THAT(steps({replace, bytes, strip}), HasSubstr("decoder 'Strip' in this place is not supported"));
  EXPECT_THAT(steps({replace, fuse, strip, strip}), HasSubstr("decoder 'Strip' in this place is not supported"));
  EXPECT_THAT(steps(json(17, replace)), HasSubstr("decoder has more than 16 steps"));
  json ends = strip;
  ends["stop"] = 1;
  EXPECT_THAT(steps({fuse, ends}), HasSubstr("Strip where a text ends (stop) is not supported"));
  json unclear = strip;
  unclear["start"] = -1;
  EXPECT_THAT(steps({fuse, unclear}), HasSubstr("Strip has no content of one character or no start"));
}

TEST(MalformedTokenizer, VocabularyOverCharactersIsChecked) {
  EXPECT_EQ(llama_refusal("/model/vocab/q", 400), "broken.json: id 400 is given to two tokens");
  // A tab and its byte may share an id, as they add the same to a text.
  EXPECT_EQ(llama_refusal("/model/vocab/\t", 3 + '\t'), "");
  EXPECT_THAT(llama_refusal("/model/merges/3", "\u2581 xyz"), HasSubstr("merge 3 needs 'xyz', which is no token"));
  const json added = {{"id", 700}, {"content", "<x>"}};
  EXPECT_THAT(llama_refusal("/added_tokens", {added, added}), HasSubstr("added token '<x>' occurs twice"));
  EXPECT_EQ(llama_refusal("/model/unk_token", "<none>"), "");
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

/// As in SmolLM2's file, which lacks 21 bytes: the tokenizers package passes them over.
TEST(ByteTokens, ThatAreMissingArePassedOver) {
  json root = own();
  json& vocabulary = root["model"]["vocab"];
  const std::string missing = "\xC4\x84";  // the alphabet's letter for byte 4
  ASSERT_TRUE(vocabulary.contains(missing));
  vocabulary.erase(missing);
  const auto tokenizer = Tokenizer::parse(root.dump(), "lacking.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto with = tokenizer->encode("a\x04z");
  ASSERT_TRUE(with);
  EXPECT_THAT(*with, testing::ElementsAre(vocabulary["a"].get<std::int32_t>(), vocabulary["z"].get<std::int32_t>()));
  EXPECT_EQ(tokenizer->decode(*with), "az");
}

}  // namespace
}  // namespace nanscope
