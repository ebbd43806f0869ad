#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/tokenizer/added_tokens.h"
#include "instrument/tokenizer/character.h"
#include "tests/cpu_seconds.h"

namespace nanscope {
namespace {

AddedTokenFinder::Entry entry(std::int32_t id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = content;
  return {std::move(content), token};
}

/// The sections as "text", or "<id>text" for a token.
std::vector<std::string> cut(const AddedTokenFinder& finder, std::string_view text) {
  std::vector<std::string> shown;
  for (const TextSection& section : finder.cut(text)) {
    shown.push_back((section.id < 0 ? "" : "<" + std::to_string(section.id) + ">").append(section.text));
  }
  return shown;
}

using Texts = std::vector<std::string>;

TEST(AddedTokenFinder, FindsTheLongestOfSeveral) {
  const AddedTokenFinder finder({entry(1, "ab"), entry(2, "abcd"), entry(3, "b"), entry(4, "ab"), entry(5, "\u00e9")});
  EXPECT_EQ(cut(finder, ""), Texts{});
  EXPECT_EQ(cut(finder, "xabcdy"), (Texts{"x", "<2>abcd", "y"}));
  EXPECT_EQ(cut(finder, "abcx"), (Texts{"<1>ab", "cx"}));
  EXPECT_EQ(cut(finder, "aab"), (Texts{"a", "<1>ab"}));
  EXPECT_EQ(cut(finder, "acb"), (Texts{"ac", "<3>b"}));
  EXPECT_EQ(cut(finder, "\xc3\u00e9\xa9"), (Texts{"\xc3", "<5>\u00e9", "\xa9"}));
  EXPECT_EQ(cut({}, "ab"), Texts{"ab"});
}

TEST(AddedTokenFinder, LooksForWholeWordsWhereAsked) {
  AddedTokenFinder::Entry word = entry(1, "or");
  word.token.single_word = true;
  const AddedTokenFinder finder({word});
  EXPECT_EQ(cut(finder, "or"), Texts{"<1>or"});
  EXPECT_EQ(cut(finder, "for or."), (Texts{"for ", "<1>or", "."}));
  for (const std::string touching : {"f", "_", "7", "\u0301", "\u4e2d", "\u200d", "\u24b6"}) {
    EXPECT_EQ(cut(finder, touching + "or"), Texts{touching + "or"});
    EXPECT_EQ(cut(finder, "or" + touching), Texts{"or" + touching});
  }
  for (const std::string apart : {" ", "-", "\u00b2", "\u20ac", "\xff"}) {
    EXPECT_EQ(cut(finder, apart + "or"), (Texts{apart, "<1>or"}));
    EXPECT_EQ(cut(finder, "or" + apart), (Texts{"<1>or", apart}));
  }
}

TEST(AddedTokenFinder, TakesWhiteSpaceAlongWhereAsked) {
  AddedTokenFinder::Entry left = entry(1, "<l>");
  left.token.lstrip = true;
  AddedTokenFinder::Entry right = entry(2, "<r>");
  right.token.rstrip = true;
  const AddedTokenFinder finder({left, right});
  EXPECT_EQ(cut(finder, "a \u2003\n<l> b"), (Texts{"a", "<1> \u2003\n<l>", " b"}));
  EXPECT_EQ(cut(finder, "a <r>\t\u0085b"), (Texts{"a ", "<2><r>\t\u0085", "b"}));
  EXPECT_EQ(cut(finder, "<r> <l>"), (Texts{"<2><r> ", "<1><l>"}));
}

/// As the package has it (0.23.3): "\n" is found in what "<r>" has taken along, and the space behind it is text again.
TEST(AddedTokenFinder, FindsTokensInWhiteSpaceThatOneTakesAlong) {
  AddedTokenFinder::Entry right = entry(1, "<r>");
  right.token.rstrip = true;
  const AddedTokenFinder finder({right, entry(2, "\n")});
  EXPECT_EQ(cut(finder, "<r>  \n a"), (Texts{"<1><r>  \n ", "<2>\n", " a"}));
  EXPECT_EQ(cut(finder, "<r>  \n <r>"), (Texts{"<1><r>  \n ", "<2>\n", " ", "<1><r>"}));
}

TEST(AddedTokenFinder, TakesNoQuadraticTimeForLongWhiteSpace) {
  AddedTokenFinder::Entry blank = entry(1, "\n");
  blank.token.lstrip = blank.token.rstrip = true;
  AddedTokenFinder::Entry word = entry(2, "\t");
  word.token.rstrip = true;
  const AddedTokenFinder finder({blank, word});
  for (const char c : {'\n', '\t'}) {
    const double start = cpu_seconds();
    EXPECT_EQ(finder.cut(std::string(1'000'000, c)).size(), c == '\n' ? 1U : 1'000'000U);
    EXPECT_LT(cpu_seconds() - start, 20);
  }
}

TEST(Character, ReplacesEveryOccurrence) {
  EXPECT_EQ(replace_all("", "a", "b"), "");
  EXPECT_EQ(replace_all("banana", "an", "\u2581"), "b\u2581\u2581a");
  EXPECT_EQ(replace_all("  ", " ", "  "), "    ");
}

}  // namespace
}  // namespace nanscope
