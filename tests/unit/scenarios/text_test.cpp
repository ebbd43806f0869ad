#include "scenarios/report/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace nanscope::report {
namespace {

const Terminal kUnicode{.width = 40, .utf8 = true, .color = false};
const Terminal kAscii{.width = 40, .utf8 = false, .color = false};
const Terminal kColor{.width = 40, .utf8 = true, .color = true};

TEST(Text, WidthCountsColumns) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("é"), 1);
  EXPECT_EQ(display_width("e\xcc\x81"), 1) << "a combining accent takes no column";
  EXPECT_EQ(display_width("日本"), 4) << "wide characters take two";
  EXPECT_EQ(display_width(paint(kColor, Ink::red, "abc")), 3);
}

TEST(Text, PrintableDisarmsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[2Jb", kUnicode), "a\\x1b[2Jb");
  EXPECT_EQ(printable("line\nnext\t", kUnicode), "line\\nnext\\t");
  EXPECT_EQ(printable("\xff\xc3", kUnicode), "\\xff\\xc3");
  EXPECT_EQ(printable("\xe2\x80\xae", kUnicode), "\\xe2\\x80\\xae") << "right-to-left override";
  EXPECT_EQ(printable("é", kUnicode), "é");
  EXPECT_EQ(printable("é", kAscii), "\\xc3\\xa9");
}

TEST(Text, ElideKeepsWholeCharacters) {
  EXPECT_EQ(elide("abcdef", 6, kUnicode), "abcdef");
  EXPECT_EQ(elide("abcdef", 4, kUnicode), "abc…");
  EXPECT_EQ(elide("abcdef", 4, kAscii), "abc~");
  EXPECT_EQ(elide("日本語", 4, kUnicode), "日…");
}

TEST(Text, WrapBreaksAtSpaces) {
  EXPECT_EQ(wrap("aa bb cc", 5), (std::vector<std::string>{"aa bb", "cc"}));
  EXPECT_EQ(wrap("a\nb", 5), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(wrap("overlong b", 4), (std::vector<std::string>{"overlong", "b"}));
  EXPECT_EQ(wrap("", 4), std::vector<std::string>{""});
}

TEST(Text, TableAlignsByColumnsNotBytes) {
  Table table({Align::left, Align::right});
  table.row({"é", "1"});
  table.row({"abc", "20"});
  table.row({"x", ""});
  EXPECT_EQ(table.text("  "), "  é     1\n  abc  20\n  x\n");
}

TEST(Text, ATableThatIsTooWideIsFolded) {
  Table table({Align::left, Align::right, Align::right});
  table.row({"change", "memory", "error"});
  table.row({"kv.format=bf16", "4096", "0.01"});
  EXPECT_EQ(table.text("  ", 40), table.text("  "));
  EXPECT_EQ(table.text("  ", 24),
            "  change          memory\n"
            "      error\n"
            "  kv.format=bf16    4096\n"
            "       0.01\n");
}

TEST(Text, TheLastColumnIsFoldedWithinItself) {
  Table table({Align::left, Align::left});
  table.row({"name", "a sentence that is longer than the line"});
  EXPECT_EQ(table.text("", 32), "name  a sentence that is longer\n      than the line\n");
  EXPECT_EQ(table.text("", 26), "name\n    a sentence that is\n    longer than the line\n") << "too narrow for that";
}

TEST(Text, PaintOnlyWhenAsked) {
  EXPECT_EQ(paint(kUnicode, Ink::red, "x"), "x");
  EXPECT_EQ(paint(kColor, Ink::red, "x"), "\x1b[31mx\x1b[0m");
}

TEST(Text, Figures) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1536), "1.54 kB");
  EXPECT_EQ(number_text(0.41234567), "0.4123");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-inf");
}

}  // namespace
}  // namespace nanscope::report
