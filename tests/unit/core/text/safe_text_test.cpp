#include "core/text/safe_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

namespace nanscope {
namespace {

/// Bytes of which many are controls, format characters, markup and broken UTF-8.
std::string random_bytes(std::mt19937& random) {
  constexpr std::string_view kParts[] = {
      "a",        "\u00e9",       "\U0001F600", "\x1b[31m", "\x1b",   "\x07",      "\n",     "\r",   "\t",
      "\x7f",     "\u0085",       "\u202e",     "\u2066",   "\u200b", "\u2028",    "\ufeff", "\xff", "\xc0\xaf",
      "\xed\xa0", "\xf4\x90\x80", "<img>",      "|",        "`",      "![x](y)",   "&",      "\"",   "'",
      "=",        "\\",           "://",        ",",        "\ue000", "\U000e0001"};
  std::string bytes;
  for (auto parts = random() % 20; parts > 0; --parts) bytes += kParts[random() % std::size(kParts)];
  if (random() % 4 == 0) bytes += '\0';
  return bytes;
}

/// The first character that is not to be seen as it is; nothing in a text that is safe.
std::string raw_in(std::string_view text, bool lines) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const std::string_view raw = text.substr(at, character.length);
    if (!is_visible(character.codepoint) && !(lines && raw == "\n")) return testing::PrintToString(std::string(raw));
    at += character.length;
  }
  return {};
}

TEST(SafeText, LeavesNothingRawInAnyOutput) {
  std::mt19937 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const std::string bytes = random_bytes(random);
    SCOPED_TRACE(testing::PrintToString(bytes));
    ASSERT_EQ(raw_in(one_line(bytes), false), "");
    ASSERT_EQ(raw_in(safe_lines(bytes), true), "");
    ASSERT_EQ(raw_in(xml_text(bytes), true), "");
    ASSERT_EQ(raw_in(markdown_text(bytes), false), "");
    ASSERT_EQ(raw_in(markdown_code(bytes), true), "");
    ASSERT_EQ(raw_in(csv_cell(bytes), false), "");
    ASSERT_EQ(raw_in(error_line(bytes), false), "");
    const nlohmann::json document{{"key", bytes}};
    const std::string plain = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const std::string json = visible_json(plain);
    ASSERT_EQ(raw_in(json, false), "");
    ASSERT_EQ(nlohmann::json::parse(json), nlohmann::json::parse(plain)) << "the same document";
    ASSERT_EQ(markdown_text(bytes).find('<'), std::string::npos);
    for (const char c : one_line(bytes, Charset::ascii)) ASSERT_TRUE(c >= ' ' && c < 0x7f);
    ASSERT_EQ(one_line(one_line(bytes)), one_line(bytes));
  }
}

TEST(SafeText, ShowsWhatItIs) {
  EXPECT_EQ(one_line("a\x1b[2J\n\t\u202e\xff"), "a\\x1b[2J\\n\\t\\xe2\\x80\\xae\\xff");
  EXPECT_EQ(one_line(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(one_line("\u00e9\u4e2d"), "\u00e9\u4e2d");
  EXPECT_EQ(one_line("\u00e9", Charset::ascii), "\\xc3\\xa9");
  EXPECT_EQ(xml_text("<a b=\"c\">&\n"), "&lt;a b=&quot;c&quot;&gt;&amp;\n");
  EXPECT_EQ(markdown_text("<img> ![i](http://e/x) a|b `c` *d* _e_"),
            "&lt;img\\> !\\[i\\](http&#58;//e/x) a\\|b \\`c\\` \\*d\\* \\_e\\_");
  EXPECT_EQ(markdown_code("a`b<c\n"), "a\\x60b\\x3cc\n");
  EXPECT_EQ(visible_json("{\"a\":\"\u202e\U000e0001\x7f\"}"), "{\"a\":\"\\u202e\\udb40\\udc01\\u007f\"}");
}

TEST(SafeText, KeepsTheColoursOfThisProgramWhereThereAreSome) {
  const std::string_view colored = "\x1b[31mred\x1b[0m\n\x1b[2J\x1b]0;x\x07";
  EXPECT_EQ(safe_lines(colored, Charset::utf8, true), "\x1b[31mred\x1b[0m\n\\x1b[2J\\x1b]0;x\\x07");
  EXPECT_EQ(safe_lines(colored), "\\x1b[31mred\\x1b[0m\n\\x1b[2J\\x1b]0;x\\x07");
}

TEST(SafeText, ShortensInTheMiddle) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("0123456789abcdefghij", 11), "012 \u2026 hij");
  EXPECT_EQ(shortened("\u4e2d\u4e2d\u4e2d\u4e2d", 4), "\u4e2d\u4e2d\u4e2d\u4e2d")
      << "characters are counted, not bytes";
  EXPECT_EQ(shortened("0123456789abcdefghij", 11, Charset::ascii), "012 ... hij");
  const std::string path = "/somewhere/" + std::string(3'000'000, 'x') + "/model.safetensors: damaged";
  const std::string line = error_line(path);
  EXPECT_LE(line.size(), kLongestError);
  EXPECT_TRUE(line.starts_with("/somewhere/x") && line.ends_with("x/model.safetensors: damaged")) << line;
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\u4e2d";
  EXPECT_EQ(raw_in(error_line(wide), false), "") << "no character is cut";
}

TEST(SafeText, CellsAreNoFormulas) {
  EXPECT_EQ(csv_cell("=1+1"), "'=1+1");
  EXPECT_EQ(csv_cell(" @SUM(A1)"), "' @SUM(A1)");
  EXPECT_EQ(csv_cell("\uff1d1"), "'\uff1d1");
  EXPECT_EQ(csv_cell("\t=1"), "\\t=1");
  EXPECT_EQ(csv_cell("-1.5e3"), "-1.5e3");
  EXPECT_EQ(csv_cell("+inf"), "+inf");
  EXPECT_EQ(csv_cell("a,\"b\"\n"), "\"a,\"\"b\"\"\\n\"");
}

}  // namespace
}  // namespace nanscope
