#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/tokenizer/split_pattern.h"
#include "instrument/tokenizer/splitter.h"

namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string_view> pieces(std::string_view pattern, SplitRule rule, std::string_view text) {
  std::vector<std::string_view> out;
  EXPECT_TRUE(Splitter::regex(pattern, rule).value().split(text, out).has_value());
  return out;
}

TEST(SplitRule, SaysWhatBecomesOfMatches) {
  using Behavior = SplitRule::Behavior;
  constexpr std::string_view kText = "-a--bc-";
  EXPECT_THAT(pieces("-", {Behavior::isolated}, kText), ElementsAre("-", "a", "-", "-", "bc", "-"));
  EXPECT_THAT(pieces("-", {Behavior::removed}, kText), ElementsAre("a", "bc"));
  EXPECT_THAT(pieces("-", {Behavior::merged_with_previous}, kText), ElementsAre("-", "a-", "-", "bc-"));
  EXPECT_THAT(pieces("-", {Behavior::merged_with_next}, kText), ElementsAre("-a", "-", "-bc", "-"));
  EXPECT_THAT(pieces("-", {Behavior::removed, true}, kText), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(pieces("-", {Behavior::merged_with_previous, true}, kText), ElementsAre("-a", "-", "-bc", "-"));
  EXPECT_THAT(pieces("-", {Behavior::merged_with_next, true}, kText), ElementsAre("-", "a-", "-", "bc-"));
  EXPECT_THAT(pieces("-", {Behavior::merged_with_previous}, "a\xff-\xff"), ElementsAre("a\xff-", "\xff"));
}

TEST(SplitPattern, IsTranslatedWhereOnigurumaDiffers) {
  const std::pair<std::string_view, std::string_view> kPatterns[] = {
      {R"((?i:'s|'t)?+[^\r\n\p{L}\p{N}]?+\p{Lu}*|(?<!a)(?>b)++\z)",
       R"((?i:'s|'t)?+[^\r\n\p{L}\p{N}]?+\p{Lu}*|(?<!a)(?>b)++\z)"},
      {R"([!"\]\\^_`{|}~.-]\{{}{a}{,a})", R"([!"\]\\^_`{|}~.-]\{{}{a}{,a})"},
      {R"([]a^$]\^\x{4e2d})", R"([]a^$]\^\x{4e2d})"},
      {R"(\s+$|^a)", R"((?m)\s+$|^a)"},
      {R"(a\p{N}{1,3}+)", R"(a(?:\p{N}{1,3})+)"},
      {R"((a[^b](c)){2}+)", R"((?:(a[^b](c)){2})+)"},
      {"\u00e9[\u00e9]{2,}+\u00e9{2}+", "\u00e9(?:[\u00e9]{2,})+(?:\u00e9{2})+"},
      {R"(\p{Han}[\P{Thai}\p{^Arabic}\p{Lu}])", R"(\p{sc:Han}[\P{sc:Thai}\p{^sc:Arabic}\p{Lu}])"},
      {R"(a{2,3}?)", R"(a{2,3}?)"},
  };
  for (const auto& [pattern, expected] : kPatterns) {
    EXPECT_EQ(pcre2_pattern(pattern).value_or("refused"), expected) << pattern;
    EXPECT_TRUE(Splitter::regex(expected).has_value()) << expected;
  }
}

/// Oniguruma's own answers.
TEST(SplitPattern, SplitsAsOnigurumaDoes) {
  const auto translated = [](std::string_view pattern, std::string_view text) {
    return pieces(pcre2_pattern(pattern).value(), {}, text);
  };
  EXPECT_THAT(translated(R"(\p{Han}+)", "\u4e2d\u3001\u56fd"), ElementsAre("\u4e2d", "\u3001", "\u56fd"));
  EXPECT_THAT(translated(R"(\p{N}{1,3})", "1234567a12"), ElementsAre("123", "456", "7", "a", "12"));
  EXPECT_THAT(translated(R"(\p{N}{1,3}+)", "1234567a12"), ElementsAre("1234567", "a", "12"));
  EXPECT_THAT(translated(R"(\s+$)", "a  \n b \n"), ElementsAre("a", "  ", "\n b", " \n"));
  EXPECT_THAT(translated(R"((?i:'s))", "a'Sb'\u017f"), ElementsAre("a", "'S", "b", "'\u017f"));
}

/// Oniguruma's own answers: marks and enclosed letters are word characters, and so are the small digits of Latin-1
/// unless they are looked for in a class.
TEST(SplitPattern, TakesWordCharactersAsOnigurumaDoes) {
  const auto translated = pcre2_pattern(R"(\w+|[^\w\s]+)");
  ASSERT_TRUE(translated.has_value()) << translated.error().message;
  EXPECT_THAT(pieces(*translated, {}, "a_1\u0301\u24b6\u00b2\u00bd-\u00b2\u09f4 \u4e2d"),
              ElementsAre("a_1\u0301\u24b6\u00b2\u00bd", "-\u00b2\u09f4", " ", "\u4e2d"));
  EXPECT_THAT(pieces(pcre2_pattern(R"(\W)").value(), {}, "a- b"), ElementsAre("a", "-", " ", "b"));
}

TEST(SplitPattern, IsRefusedByNameWhereItCannotBeTranslated) {
  const std::pair<std::string_view, std::string_view> kPatterns[] = {
      {R"([\W])", R"(\W)"},
      {R"(a\b)", R"(\b)"},
      {R"(\h)", R"(\h)"},
      {R"((a)\1)", R"(\1)"},
      {R"(\xe4)", R"(\x)"},
      {R"(\pL)", R"(\pL)"},
      {R"(\p{L&})", R"(\p{L&})"},
      {R"(\p{Lu)", R"(\p{)"},
      {"a\\", "a \\ at its end"},
      {"(?m:.)", "(?m"},
      {"(?<name>a)", "(?<"},
      {"(?", "(?"},
      {"(*FAIL)", "(*"},
      {"[a-z&&[aeiou]]", "&&"},
      {"[a[b]]", "a class inside a class"},
      {"[[:alpha:]]", "a class inside a class"},
      {"[a", "a class without an end"},
      {"a{,3}", "{,"},
      {"a{3}?", "{n}?"},
  };
  for (const auto& [pattern, what] : kPatterns) {
    const Result<std::string> translated = pcre2_pattern(pattern);
    ASSERT_FALSE(translated.has_value()) << pattern;
    EXPECT_THAT(translated.error().message, HasSubstr("split pattern has " + std::string(what))) << pattern;
    EXPECT_THAT(translated.error().message, HasSubstr(", which is not supported")) << pattern;
  }
}

}  // namespace
}  // namespace nanscope
