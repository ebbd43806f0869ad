#include "scenarios/report/tokens_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nanscope::report {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTokenizer = R"({
  "version": "1.0", "normalizer": null, "post_processor": null, "added_tokens": [],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"!": 0, "a": 1, "b": 2, "\u00c3": 3, "\u0120": 4, "\u0120a": 6},
            "merges": ["\u0120 a"]}})";

TEST(TokensReport, ShowsEachTokenItsBytesAndWhatTheyDecodeTo) {
  const Tokenizer tokenizer = Tokenizer::parse(kTokenizer, "tokenizer.json").value();
  const TokensOf made{.file = "dir/tokenizer.json",
                      .text = "b a",
                      .ids = tokenizer.encode("b a").value(),
                      .special = {{.role = "pad", .id = 5, .source = "config.json"}}};
  EXPECT_EQ(tokens_text(tokenizer, made, {}), R"(Tokenizer dir/tokenizer.json, 7 ids
Tokens    2 for 3 bytes

  index  id  piece  bytes
      0   2  "b"    62
      1   6  " a"   20 61

Decoded   "b a", equal to the text

  role   id  piece    source
  first   0  "!"      the answer of an argmax over a row of NaN
  pad     5  no text  config.json
)");
  const auto json = nlohmann::json::parse(tokens_json(tokenizer, made));
  EXPECT_EQ(json["tokens"][1]["piece"], " a");
  EXPECT_EQ(json["tokens"][1]["bytes"], "20 61");
  EXPECT_EQ(json["special"][0]["piece"], "!");
  EXPECT_EQ(json["special"][1]["role"], "pad");
}

/// A byte alone is no UTF-8, and shows as its code.
TEST(TokensReport, IdsAreDecodedWithoutAText) {
  const Tokenizer tokenizer = Tokenizer::parse(kTokenizer, "tokenizer.json").value();
  const std::string text = tokens_text(tokenizer, {.file = "t", .text = {}, .ids = {0, 0, 3}, .special = {}}, {});
  EXPECT_THAT(text, HasSubstr("Tokens    3\n"));
  EXPECT_THAT(text, HasSubstr(R"(Decoded   "!!\xc3")"));
  EXPECT_THAT(tokens_text(tokenizer, {.file = "t", .text = {}, .ids = {}, .special = {}}, {}),
              testing::Not(HasSubstr("Decoded")));
}

}  // namespace
}  // namespace nanscope::report
