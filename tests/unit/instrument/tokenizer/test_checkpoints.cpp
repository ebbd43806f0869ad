#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/files/file.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

using nlohmann::json;

json checkpoint_json(const std::string& name) {
  const std::filesystem::path folder = NANSCOPE_SOURCE_DIR "/tests/unit/instrument/tokenizer/checkpoints";
  const auto bytes = read_file(folder / name, 1 << 24);
  return bytes ? json::parse(as_text(*bytes)) : json();
}

const json& golden() {
  static const json root = checkpoint_json("golden.json");
  return root;
}

Result<Tokenizer> load_checkpoint(const std::string& name, const json& patch = json::array()) {
  return Tokenizer::parse(checkpoint_json(name).patch(patch).dump(), name);
}

/// What checkpoints/make_tokenizers.py has the `tokenizers` package do with the pipeline of each family of models.
class CheckpointTokenizers : public testing::TestWithParam<std::size_t> {
 protected:
  const json& group() { return golden()["groups"].at(GetParam()); }
  Result<Tokenizer> load() { return load_checkpoint(group()["file"], group()["patch"]); }
};

TEST_P(CheckpointTokenizers, EncodeAndDecodeAsThePackageDoes) {
  SCOPED_TRACE(group()["name"].get<std::string>());
  const Result<Tokenizer> tokenizer = load();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const json& encodings = group()["encodings"];
  ASSERT_GE(encodings.size(), 150U);
  for (std::size_t i = 0; i < encodings.size(); ++i) {
    const auto text = golden()["texts"].at(i).get<std::string>();
    SCOPED_TRACE(json(text).dump());
    const json& entry = encodings[i];
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(*ids, entry[0].get<std::vector<std::int32_t>>());
    const std::string decoded = entry.size() > 1 ? entry[1].get<std::string>() : text;
    EXPECT_EQ(tokenizer->decode(*ids), decoded);
    if (encodings.size() == golden()["texts"].size()) {
      EXPECT_EQ(tokenizer->decode(*ids, /*skip_special=*/true),
                entry.size() > 2 ? entry[2].get<std::string>() : decoded);
    }
  }
}

TEST_P(CheckpointTokenizers, DecodeAnyIdsAsThePackageDoes) {
  SCOPED_TRACE(group()["name"].get<std::string>());
  const Result<Tokenizer> tokenizer = load();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  for (const json& entry : group()["decodings"]) {
    EXPECT_EQ(tokenizer->decode(entry[0].get<std::vector<std::int32_t>>()), entry[1].get<std::string>()) << entry[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, CheckpointTokenizers, testing::Range<std::size_t>(0, 26), [](const auto& group) {
  auto name = golden()["groups"].at(group.param)["name"].template get<std::string>();
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
  return name;
});

TEST(CheckpointTokenizers, AreAllTried) { EXPECT_EQ(golden()["groups"].size(), 26U); }

TEST(CharacterTokenizer, SaysWhatEachTokenAdds) {
  const Tokenizer llama = load_checkpoint("llama.json").value();
  EXPECT_EQ(llama.token_text(0), "<unk>");
  EXPECT_EQ(llama.token_text(1), "<s>");
  EXPECT_EQ(llama.token_text(3), std::string_view("\0", 1));
  EXPECT_EQ(llama.token_text(3 + '\n'), "\n");
  EXPECT_EQ(llama.token_text(3 + 0xFF), "\xFF");
  EXPECT_EQ(llama.added_token("</s>"), 2);
  const std::vector<std::int32_t> ids = llama.encode("the").value();
  ASSERT_EQ(ids.size(), 1U);
  EXPECT_EQ(llama.token_text(ids[0]), " the");
  EXPECT_EQ(llama.decode(ids), "the");
  EXPECT_EQ(llama.decode(std::vector<std::int32_t>{3 + ' ', ids[0]}), " the");
  // Llama's file takes one space from the beginning, Gemma's none.
  const Tokenizer gemma = load_checkpoint("gemma.json").value();
  EXPECT_EQ(gemma.decode(gemma.encode("  the").value()), "  the");
}

/// Strings of mostly lead and continuation bytes, so that broken sequences of all kinds occur.
std::vector<std::string> broken_texts() {
  std::vector<std::string> texts = {"\xFF",
                                    "\xC3",
                                    "ab\xC3(\xE2\x82 the\xF0\x9F",
                                    "\xED\xA0\x80",
                                    "\xC0\xAF the\x80",
                                    "\xE2\x96",
                                    "\xE2\x96\xE2\x96"};
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 128 : 128 + random() % 128);
    texts.push_back(text);
  }
  return texts;
}

TEST(CharacterTokenizer, KeepsEveryByteOfInvalidUtf8) {
  for (const std::string name : {"llama.json", "gemma.json"}) {
    const Tokenizer tokenizer = load_checkpoint(name).value();
    for (const std::string& text : broken_texts()) {
      const auto ids = tokenizer.encode(text);
      ASSERT_TRUE(ids.has_value()) << ids.error().message;
      EXPECT_EQ(tokenizer.decode(*ids), text) << testing::PrintToString(text);
      EXPECT_THAT(*ids, testing::Not(testing::Contains(*tokenizer.added_token("<unk>"))));
    }
  }
}

TEST(CharacterTokenizer, TakesTheUnknownTokenOrSaysWhatHasNone) {
  const json no_bytes = {{"op", "replace"}, {"path", "/model/byte_fallback"}, {"value", false}};
  const json no_unknown = {{"op", "replace"}, {"path", "/model/unk_token"}, {"value", nullptr}};
  const Tokenizer unknown = load_checkpoint("llama.json", json::array({no_bytes})).value();
  EXPECT_EQ(unknown.decode(unknown.encode("the \xFF\xFE\U0001F600 the").value()), "the <unk> the");

  const Tokenizer none = load_checkpoint("llama.json", json::array({no_bytes, no_unknown})).value();
  EXPECT_TRUE(none.encode("the").has_value());
  for (const auto& [text, what] : {std::pair("the \U0001F600", "character U+1F600"), std::pair("\xFF", "byte 0xFF")}) {
    const auto ids = none.encode(text);
    ASSERT_FALSE(ids.has_value());
    EXPECT_THAT(ids.error().message, testing::StartsWith(std::string(what) + " has no token, and the tokenizer has"));
  }
  // With byte tokens nothing is unknown.
  EXPECT_TRUE(load_checkpoint("llama.json", json::array({no_unknown})).value().encode("\U0001F600\xFF").has_value());
}

}  // namespace
}  // namespace nanscope
