// Tokenizers in the metadata of GGUF files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "instrument/tokenizer/byte_alphabet.h"
#include "instrument/tokenizer/tokenizer.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/gguf/gguf_builder.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_gguf::Builder;
using testing_gguf::Bytes;

struct Words {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<std::int32_t> kinds;
};

Builder file_of(const Words& words, const std::string& pre, const std::string& model = "gpt2") {
  Builder file;
  file.text("tokenizer.ggml.model", model).text("tokenizer.ggml.pre", pre);
  file.texts("tokenizer.ggml.tokens", words.tokens).texts("tokenizer.ggml.merges", words.merges);
  Bytes kinds;
  kinds.number<std::uint32_t>(5).number<std::uint64_t>(words.kinds.size());
  for (const std::int32_t kind : words.kinds) kinds.number(kind);
  return file.value("tokenizer.ggml.token_type", 9, kinds.bytes);
}

Result<Tokenizer> loaded(const Builder& file) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = file.build();
  std::ofstream(folder / "m.gguf", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return Tokenizer::load(folder / "m.gguf");
}

std::vector<std::int32_t> ids_of(const Result<Tokenizer>& tokenizer, const std::string& text) {
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  if (!tokenizer) return {};
  return tokenizer->encode(text).value();
}

/// The tokenizer that nanscope ships, as llama.cpp's converter would write it.
Words shipped() {
  const std::string path = NANSCOPE_SOURCE_DIR "/instrument/corpus/tokenizer.json";
  const auto json = nlohmann::json::parse(read_text(path));
  Words words;
  words.tokens.resize(json["model"]["vocab"].size() + json["added_tokens"].size());
  words.kinds.assign(words.tokens.size(), 1);
  for (const auto& [token, id] : json["model"]["vocab"].items()) words.tokens[id.get<std::size_t>()] = token;
  for (const auto& added : json["added_tokens"]) {
    words.tokens[added["id"].get<std::size_t>()] = added["content"].get<std::string>();
    words.kinds[added["id"].get<std::size_t>()] = 3;
  }
  for (const auto& merge : json["model"]["merges"]) {
    words.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                             : merge[0].get<std::string>() + ' ' + merge[1].get<std::string>());
  }
  return words;
}

TEST(GgufTokenizers, EncodeAsTheirTokenizerJsonDoes) {
  const Result<Tokenizer> own = Tokenizer::load(NANSCOPE_SOURCE_DIR "/instrument/corpus/tokenizer.json");
  const Result<Tokenizer> found = loaded(file_of(shipped(), "gpt-2"));
  for (const std::string text : {"Every evening the old keeper", "it's 1234 o'clock\n\n  end", "<|end|>x<|end|>",
                                 "na\xC3\xAFve \xF0\x9F\x98\x80", ""}) {
    EXPECT_EQ(ids_of(found, text), ids_of(own, text)) << text;
    EXPECT_EQ(found->decode(ids_of(found, text)), text);
  }
}

/// Letters and digits with merges of "12", "123" and a word that nothing is merged to.
Words small() {
  Words words{.tokens = {"1", "2", "3", "a", "b", "12", "123", "ab3", "aab", "e", "\xC3\x8C", "\xC4\xA3"},
              .merges = {"1 2", "12 3", "b 3"},
              .kinds = {}};
  words.tokens[7] = "b3";
  words.kinds.assign(words.tokens.size(), 1);
  return words;
}

TEST(GgufTokenizers, SplitATextByTheirName) {
  // GPT-2's pattern keeps digits together and letters from them; the others limit the number of digits.
  EXPECT_THAT(ids_of(loaded(file_of(small(), "gpt-2")), "b3123"), ElementsAre(4, 2, 6));
  EXPECT_THAT(ids_of(loaded(file_of(small(), "smollm")), "b3123"), ElementsAre(4, 2, 0, 1, 2));
  EXPECT_THAT(ids_of(loaded(file_of(small(), "llama-bpe")), "b3123"), ElementsAre(4, 2, 5, 2));
  EXPECT_THAT(ids_of(loaded(file_of(small(), "qwen2")), "b3123"), ElementsAre(4, 2, 0, 1, 2));
  EXPECT_THAT(ids_of(loaded(file_of(small(), "gpt-2")), "aab"), ElementsAre(3, 3, 4));
  EXPECT_THAT(ids_of(loaded(file_of(small(), "llama-bpe")), "aab"), ElementsAre(8));
}

TEST(GgufTokenizers, NormalizeWhereTheModelDoes) {
  const Words words = shipped();
  const Result<Tokenizer> plain = loaded(file_of(words, "gpt-2"));
  const Result<Tokenizer> composed = loaded(file_of(words, "qwen2"));
  EXPECT_EQ(ids_of(composed, "e\xCC\x81"), ids_of(plain, "\xC3\xA9"));
  EXPECT_NE(ids_of(plain, "e\xCC\x81"), ids_of(plain, "\xC3\xA9"));
}

TEST(GgufTokenizers, OfOtherKindsAreRefusedByName) {
  EXPECT_THAT(loaded(file_of(small(), "gpt-2", "llama")).error().message,
              HasSubstr("m.gguf: tokenizer.ggml.model 'llama' of tokenizer.ggml.pre 'gpt-2' is not read"));
  EXPECT_THAT(loaded(file_of(small(), "gpt")).error().message, HasSubstr("tokenizer.ggml.pre 'gpt' is not read"));
  Builder bare;
  bare.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "qwen2");
  EXPECT_THAT(loaded(bare).error().message, HasSubstr("m.gguf: tokenizer.ggml.tokens: expected a list"));
  bare.texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(loaded(bare).error().message, HasSubstr("m.gguf: tokenizer.ggml.merges: expected a list"));
  Builder numbers = bare;
  numbers.value("tokenizer.ggml.merges", 9, Bytes().number<std::uint32_t>(4).number<std::uint64_t>(1).number(7).bytes);
  EXPECT_THAT(loaded(numbers).error().message, HasSubstr("tokenizer.ggml.merges: expected texts"));
  EXPECT_THAT(loaded(file_of({{"a", "b"}, {"a c"}, {1, 1}}, "gpt-2")).error().message, HasSubstr("m.gguf: "));
}

}  // namespace
}  // namespace nanscope
