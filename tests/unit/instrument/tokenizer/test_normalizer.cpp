#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "instrument/tokenizer/normalizer.h"
#include "tests/cpu_seconds.h"

namespace nanscope {
namespace {

using Kind = NormalizerStep::Kind;

std::string nfc(const std::string& text) { return normalize(text, std::vector<NormalizerStep>{{Kind::nfc, {}, {}}}); }

TEST(Normalizer, ComposesCharacters) {
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("cafe\u0301 A\u030a \u212b"), "caf\u00e9 \u00c5 \u00c5");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1ea1\u0301");       // marks in order of their classes
  EXPECT_EQ(nfc("\u0301a\u0323"), "\u0301\u1ea1");       // a mark without a character before it
  EXPECT_EQ(nfc("\u0958\u2126"), "\u0915\u093c\u03a9");  // what is never composed, and what stands for another
  EXPECT_EQ(nfc("\u1112\u1161\u11ab\uae00"), "\ud55c\uae00");
  EXPECT_EQ(nfc("\uc560\u11a7a"), "\uc560\u11a7a");  // a vowel behind a syllable, no final consonant
  EXPECT_EQ(nfc("\U0001D15E\U0001F600"), "\U0001D157\U0001D165\U0001F600");
}

TEST(Normalizer, LeavesBytesThatAreNoUtf8) {
  EXPECT_EQ(nfc("e\xff\u0301\xc3"), "e\xff\u0301\xc3");
  EXPECT_EQ(nfc("\xed\xa0\x80"
                "e\u0301\x80"),
            "\xed\xa0\x80\u00e9\x80");
}

TEST(Normalizer, AppliesItsStepsInOrder) {
  const NormalizerStep prepend{Kind::prepend, {}, "\u2581"};
  const NormalizerStep replace{Kind::replace, " ", "\u2581"};
  const NormalizerStep back{Kind::replace, "\u2581", "_"};
  EXPECT_EQ(normalize("", std::vector{prepend, replace}), "");
  EXPECT_EQ(normalize(" a", std::vector{prepend, replace}), "\u2581\u2581a");
  EXPECT_EQ(normalize("a \xff", std::vector{prepend, back, replace}), "_a\u2581\xff");
}

/// Putting the marks of a megabyte in order took utf8proc_map() twenty minutes.
TEST(Normalizer, TakesNoQuadraticTimeForMarks) {
  std::string text = "a";
  std::string lower;
  std::string upper;
  for (int i = 0; i < 250'000; ++i) {
    text += "\u0301\u0323";
    if (i > 0) lower += "\u0323";
    upper += "\u0301";
  }
  const double start = cpu_seconds();
  EXPECT_EQ(nfc(text), "\u1ea1" + lower + upper);
  EXPECT_LT(cpu_seconds() - start, 20);
}

}  // namespace
}  // namespace nanscope
