#include "gui/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

/// Scripts as steps, and what is wrong with wrong ones.
namespace nanscope::gui {
namespace {

constexpr int kGlfwP = 80;
constexpr int kGlfwLeft = 263;
constexpr int kGlfwF1 = 290;

ScriptStep only(std::string_view line) {
  const Result<Script> script = parse_script(line, "s.txt");
  EXPECT_TRUE(script) << script.error().message;
  if (!script || script->steps.size() != 1) return {};
  return script->steps.front();
}

std::string wrong(std::string_view text) {
  const Result<Script> script = parse_script(text, "s.txt");
  return script ? "nothing" : script.error().message;
}

TEST(ScriptText, IsAStepALineWithoutCommentsAndEmptyLines) {
  const auto script = parse_script("# first\n\n  close  # the end\r\nselect 2/0/1/inner_norm\n", "s.txt");
  ASSERT_TRUE(script) << script.error().message;
  ASSERT_EQ(script->steps.size(), 2U);
  EXPECT_EQ(script->steps[0].verb, Verb::close);
  EXPECT_EQ(script->steps[0].line, 3);
  EXPECT_EQ(script->steps[1].line, 4);
  EXPECT_EQ(script->steps[1].words, "2/0/1/inner_norm");
}

TEST(ScriptText, QuotesHoldSpacesMarksAndHashes) {
  EXPECT_EQ(only(R"(type "a \"b\" # c \\")").words, R"(a "b" # c \)");
  EXPECT_THAT(wrong("close\ntype \"open"), ::testing::StartsWith("s.txt:2: a quotation mark"));
}

TEST(ScriptText, NamesKeysWithTheirModifiers) {
  const KeyPress palette = only("key CTRL+shift+p").press;
  EXPECT_EQ(palette.key, kGlfwP);
  EXPECT_TRUE(palette.held.ctrl && palette.held.shift && !palette.held.alt);
  EXPECT_EQ(only("key ALT+LEFT").press.key, kGlfwLeft);
  EXPECT_EQ(only("key F1").press.key, kGlfwF1);
  EXPECT_EQ(only("key F12").press.key, kGlfwF1 + 11);
  EXPECT_THAT(wrong("key HYPER+A"), ::testing::HasSubstr("'HYPER' is no modifier"));
  EXPECT_THAT(wrong("key F13"), ::testing::HasSubstr("there is no key 'F13'"));
  EXPECT_THAT(wrong("key"), ::testing::HasSubstr("expected a key"));
}

TEST(ScriptText, PointsAtPixelsWordsItemsAndCells) {
  Target point;
  point.x = 10;
  point.y = 20.5F;
  EXPECT_EQ(only("click 10 20.5").target, point);
  Target words;
  words.kind = Target::Kind::text;
  words.words = "Next event";
  EXPECT_EQ(only("click \"Next event\"").target, words);
  words.nth = 2;
  EXPECT_EQ(only("move \"Next event\" 2").target, words);
  Target cell;
  cell.kind = Target::Kind::cell;
  cell.words = "2/0/1/inner_norm[7]";
  EXPECT_EQ(only("click cell 2/0/1/inner_norm[7]").target, cell);
  cell.view = "tensor";
  EXPECT_EQ(only("where cell 2/0/1/inner_norm[7] in tensor").target, cell);
  Target item;
  item.kind = Target::Kind::item;
  item.words = "back";
  EXPECT_EQ(only("click item back").target, item);
  EXPECT_THAT(wrong("click back"), ::testing::HasSubstr("expected X Y"));
  EXPECT_THAT(wrong("click 10"), ::testing::HasSubstr("expected X Y"));
}

TEST(ScriptText, TellsHowTheMouseIsUsed) {
  const ScriptStep twice = only("click double 1 2");
  EXPECT_EQ(twice.clicks, 2);
  EXPECT_EQ(twice.button, 0);
  const ScriptStep right = only("click double right SHIFT 1 2");
  EXPECT_EQ(right.clicks, 2);
  EXPECT_EQ(right.button, 1);
  EXPECT_TRUE(right.press.held.shift);
  const ScriptStep by = only("drag 1 2 by 30 -40");
  EXPECT_EQ(by.verb, Verb::drag_by);
  EXPECT_EQ(by.to.y, -40);
  const ScriptStep to = only("drag item scrubber to \"Origin\"");
  EXPECT_EQ(to.verb, Verb::drag_to);
  EXPECT_EQ(to.to.words, "Origin");
  const ScriptStep wheel = only("wheel CTRL -3 5 6");
  EXPECT_EQ(wheel.amount, -3);
  EXPECT_TRUE(wheel.press.held.ctrl);
  EXPECT_EQ(wheel.target.y, 6);
  EXPECT_THAT(wrong("drag 1 2 3 4"), ::testing::HasSubstr("'to' or 'by'"));
  EXPECT_THAT(wrong("drag 1 2 by \"x\""), ::testing::HasSubstr("two numbers"));
  EXPECT_THAT(wrong("wheel 5 \"x\" 1 2"), ::testing::HasSubstr("one word too many"));
}

TEST(ScriptText, WaitsAndExpects) {
  EXPECT_EQ(only("wait settled").verb, Verb::wait_settled);
  EXPECT_EQ(only("wait 1.5").amount, 1.5);
  EXPECT_EQ(only("wait 1.5").verb, Verb::wait_seconds);
  EXPECT_THAT(wrong("wait -1"), ::testing::HasSubstr("seconds up to"));
  EXPECT_EQ(only("expect place a").verb, Verb::expect_place);
  EXPECT_EQ(only("expect view bits").verb, Verb::expect_view);
  EXPECT_EQ(only("expect text \"a b\"").words, "a b");
  EXPECT_EQ(only("expect no text x").verb, Verb::expect_no_text);
  EXPECT_EQ(only("expect file out.csv").verb, Verb::expect_file);
  EXPECT_EQ(only("expect clipboard x").verb, Verb::expect_clipboard);
  EXPECT_THAT(wrong("expect no place x"), ::testing::HasSubstr("expected one of: place"));
  EXPECT_THAT(wrong("expect text"), ::testing::HasSubstr("expected the text"));
}

TEST(ScriptText, RefusesWhatIsNoStepAndNamesTheLine) {
  EXPECT_EQ(wrong("close\n\nclik 1 2"), "s.txt:3: unknown step 'clik'; did you mean 'click'?");
  EXPECT_THAT(wrong("close now"), ::testing::HasSubstr("'now' is one word too many"));
  EXPECT_THAT(wrong("resize 10x10"), ::testing::HasSubstr("'10x10' is no size"));
  EXPECT_EQ(only("resize 900x700").size, (Extent{900, 700}));
}

TEST(ScriptText, ThatCannotBeReadIsRefused) {
  EXPECT_FALSE(read_script("/nowhere/s.txt"));
  EXPECT_FALSE(read_script("/"));
}

}  // namespace
}  // namespace nanscope::gui
