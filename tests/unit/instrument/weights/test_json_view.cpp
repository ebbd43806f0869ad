#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "instrument/files/json_view.h"

namespace nanscope {
namespace {

JsonView checked(std::string_view text) {
  const auto view = check_json(text);
  if (!view) ADD_FAILURE() << text << ": " << view.error().what << " at " << view.error().offset;
  return view.value_or(JsonView());
}

std::string problem(std::string_view text, const JsonLimits& limits = {}) {
  const auto view = check_json(text, limits);
  return view ? "" : std::to_string(view.error().offset) + ": " + view.error().what;
}

TEST(JsonView, LooksAtValuesWhereTheyLie) {
  const std::string text = R"( {"a" : [1, -2.5e3, "x\"]}", {}, []], "b":{"c":null, "d" : true}, "e": 18 } )";
  const JsonView view = checked(text);
  EXPECT_EQ(view.size(), 3U);
  const JsonView a = view.find("a").value();
  EXPECT_EQ(a.size(), 5U);
  std::vector<std::string> sources;
  for (const JsonMember& item : a.items()) sources.emplace_back(item.value.source());
  EXPECT_THAT(sources, testing::ElementsAre("1", "-2.5e3", R"("x\"]}")", "{}", "[]"));
  EXPECT_EQ(view.find("b")->find("d")->kind(), JsonKind::boolean);
  EXPECT_EQ(view.find("b")->find("c")->kind(), JsonKind::null);
  EXPECT_EQ(view.find("e")->natural(), 18);
  EXPECT_EQ(a.source().data(), text.data() + text.find('['));
  EXPECT_FALSE(view.find("c"));
  EXPECT_FALSE(a.find("c"));
}

TEST(JsonView, UndoesEscapesAsRfc8259Says) {
  const JsonView view = checked(R"(["\"\\\/\b\f\n\r\t", "\u00e9\u20AC\ud83d\ude00", "k\u0065y"])");
  std::vector<std::string> texts;
  for (const JsonMember& item : view.items()) texts.push_back(item.value.text());
  EXPECT_THAT(texts, testing::ElementsAre("\"\\/\b\f\n\r\t", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "key"));
  EXPECT_TRUE(checked(R"("k\u0065y")").equals("key"));
  EXPECT_FALSE(checked("7").equals("7"));
}

TEST(JsonView, TellsNaturalNumbersFromOthers) {
  EXPECT_EQ(checked("9223372036854775807").natural(), INT64_MAX);
  for (const char* other : {"9223372036854775808", "-1", "-0", "1.0", "1e2", "\"1\"", "null", "[1]"}) {
    EXPECT_FALSE(checked(other).natural()) << other;
  }
  EXPECT_EQ(checked("-0.5").number(), -0.5);
  EXPECT_EQ(checked("1e-400").number(), 0.0);
  EXPECT_FALSE(checked("\"1\"").number());
}

TEST(JsonView, NamesWhereATextIsNoJson) {
  EXPECT_EQ(problem(""), "0: not JSON here");
  EXPECT_EQ(problem("{\"a\":}"), "5: not JSON here");
  EXPECT_EQ(problem("[1 2]"), "3: not JSON here");
  EXPECT_EQ(problem("[1],"), "3: not JSON here");
  // nlohmann::json takes a NUL for the end of the text, and what follows for nothing.
  EXPECT_EQ(problem(std::string_view("[1]\0{", 5)), "3: not JSON here");
  EXPECT_EQ(problem("[1e999]"), "1: a number is beyond the range of JSON's numbers here");
  EXPECT_EQ(problem("{\"a\":{\"b\":1,\"\\u0062\":2}}"), "0: names 'b' twice");
  EXPECT_EQ(problem("[[[]]]", {.depth = 2}), "2: nested too deeply, expected at most 2");
  EXPECT_EQ(problem("[\"abcd\", \"abcde\"]", {.longest_text = 6}), "9: a text of 7 bytes, expected at most 6");
  for (const char* wrong :
       {"[1,]", "{\"a\":1,}", "{a:1}",    "[01]",    "[1.]",        "[.5]",        "[+1]",        "[1e]",
        "nul",  "\"\t\"",     "\"\xff\"", "\"\\x\"", "\"\\u12\"",   "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
        "\"",   "[",          "{\"a\"",   "NaN",     "[-Infinity]", "'a'",         "[1]//"}) {
    EXPECT_NE(problem(wrong), "") << wrong;
    EXPECT_FALSE(nlohmann::json::accept(wrong)) << wrong;
  }
}

TEST(JsonView, ReadsPythonsBareWordsWhereAsked) {
  const auto view = check_json("[NaN, Infinity,-Infinity]", {.bare_words = true});
  ASSERT_TRUE(view);
  std::vector<double> numbers;
  for (const JsonMember& item : view->items()) numbers.push_back(item.value.number().value());
  EXPECT_TRUE(std::isnan(numbers[0]));
  EXPECT_EQ(numbers[1], INFINITY);
  EXPECT_EQ(numbers[2], -INFINITY);
  EXPECT_EQ(check_json(R"({"NaN" : "NaN", "a":NaN})", {.bare_words = true})->find("NaN")->text(), "NaN");
  for (const char* wrong : {"1NaN", "[NaN5]", "-NaN", "NaN.5", "[1 NaN]", "+Infinity", "NaNNaN", "{NaN:1}"}) {
    EXPECT_NE(problem(wrong, {.bare_words = true}), "") << wrong;
  }
}

}  // namespace
}  // namespace nanscope
