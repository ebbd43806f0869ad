#include "instrument/model/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTokenizer = R"({
  "version": "1.0", "normalizer": null, "post_processor": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "added_tokens": [{"id": 2, "content": "<pad>", "special": true, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false}],
  "model": {"type": "BPE", "vocab": {"!": 0, "a": 1}, "merges": []}})";

class SpecialTokens : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  Result<std::vector<SpecialToken>> read() {
    return special_tokens(folder_.path(), Tokenizer::parse(kTokenizer, "tokenizer.json").value());
  }
  std::vector<std::string> lines() {
    std::vector<std::string> all;
    const std::vector<SpecialToken> tokens = read().value();
    for (const SpecialToken& one : tokens) all.push_back(one.role + " " + std::to_string(one.id) + " " + one.source);
    return all;
  }
  std::string error() { return read().error().message; }

  TemporaryFolder folder_;
};

TEST_F(SpecialTokens, ThreeFilesAreReadAndMayDisagree) {
  write("config.json", R"({"bos_token_id": 1, "eos_token_id": [1, 2], "pad_token_id": null})");
  write("generation_config.json", R"({"bos_token_id": 1, "pad_token_id": 0})");
  write("tokenizer_config.json", R"({"pad_token": {"content": "<pad>"}, "eos_token": "<pad>", "unk_token": "<none>"})");
  EXPECT_THAT(lines(), ElementsAre("begin 1 config.json, generation_config.json", "end 1 config.json",
                                   "end 2 config.json, tokenizer_config.json", "pad 0 generation_config.json",
                                   "pad 2 tokenizer_config.json"));
}

TEST_F(SpecialTokens, AFolderWithoutTheFilesSaysNothing) { EXPECT_THAT(lines(), ElementsAre()); }

TEST_F(SpecialTokens, WhatIsNotUnderstoodIsNamed) {
  write("config.json", R"({"eos_token_id": "two"})");
  EXPECT_THAT(error(), HasSubstr("config.json: eos_token_id: is no whole number"));
  write("config.json", "[1]");
  EXPECT_THAT(error(), HasSubstr("config.json: is no JSON object"));
  write("config.json", "{");
  EXPECT_THAT(error(), HasSubstr("config.json: "));
}

}  // namespace
}  // namespace nanscope
