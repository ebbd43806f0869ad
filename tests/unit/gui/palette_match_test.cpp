#include "gui/palette_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Titles that were found, the best first.
std::vector<std::string> found(const std::vector<Findable>& all, std::string_view query) {
  std::vector<std::string> titles;
  for (const PaletteMatch& match : find_in_palette(all, query)) titles.emplace_back(all[match.index].title);
  return titles;
}

TEST(PaletteMatch, ABlankQueryFindsAllInTheirOrder) {
  EXPECT_THAT(found({{"b", ""}, {"a", ""}}, ""), ElementsAre("b", "a"));
  EXPECT_THAT(found({{"longer", ""}, {"a", ""}}, "  "), ElementsAre("longer", "a"));
}

TEST(PaletteMatch, LettersMayBeApartButNotOutOfOrder) {
  EXPECT_THAT(found({{"Next event", ""}}, "nev"), ElementsAre("Next event"));
  EXPECT_THAT(found({{"Next event", ""}}, "ven"), ElementsAre("Next event"));
  EXPECT_THAT(found({{"Next event", ""}}, "tn"), ElementsAre("Next event"));
  EXPECT_THAT(found({{"Next event", ""}}, "tx"), IsEmpty());
  EXPECT_THAT(found({{"Next event", ""}}, "next events"), IsEmpty());
}

TEST(PaletteMatch, CaseDoesNotMatter) { EXPECT_THAT(found({{"KV store", ""}}, "kv ST"), ElementsAre("KV store")); }

TEST(PaletteMatch, BeginningsOfWordsComeFirst) {
  EXPECT_THAT(found({{"blow coin", ""}, {"one op back", ""}}, "ob"), ElementsAre("one op back"));
  EXPECT_THAT(found({{"a knob", ""}, {"origin back", ""}}, "ob").front(), "origin back");
  EXPECT_THAT(found({{"softmax_store", ""}, {"kv_store", ""}}, "store").front(), "kv_store") << "the shorter one";
}

TEST(PaletteMatch, LettersTogetherComeBeforeLettersApart) {
  EXPECT_THAT(found({{"n-o-r-m", ""}, {"inner_norm", ""}}, "norm").front(), "inner_norm");
}

TEST(PaletteMatch, EveryWordHasToOccurInAnyOrder) {
  const std::vector<Findable> all{{"Show Scales", ""}, {"Show Bits", ""}};
  EXPECT_THAT(found(all, "scales show"), ElementsAre("Show Scales"));
  EXPECT_THAT(found(all, "show nothing"), IsEmpty());
}

TEST(PaletteMatch, ADetailCountsLessThanATitle) {
  const std::vector<Findable> all{{"first", "kv_store"}, {"kv_store", "second"}};
  EXPECT_THAT(found(all, "kv_store"), ElementsAre("kv_store", "first"));
  EXPECT_THAT(found({{"inner_norm of layer 1", "2/0/1/inner_norm"}}, "norm 2/0/1"),
              ElementsAre("inner_norm of layer 1"));
}

TEST(PaletteMatch, WhatIsFarBehindTheBestIsLeftOut) {
  EXPECT_THAT(found({{"Scales", ""}, {"mist ocean half tent ants", ""}}, "scales"), ElementsAre("Scales"));
}

TEST(PaletteMatch, TellsWhichLettersWereTyped) {
  const std::vector<Findable> all{{"Next event", ""}};
  EXPECT_THAT(find_in_palette(all, "nev").front().bytes, ElementsAre(0, 5, 6));
  EXPECT_THAT(find_in_palette(all, "ev ne").front().bytes, ElementsAre(0, 1, 5, 6));
}

TEST(PaletteMatch, LongTextAndEmptyTextDoNoHarm) {
  const std::string lengthy(100'000, 'a');
  EXPECT_EQ(found({{lengthy, lengthy}, {"", ""}}, "aaaa").size(), 1U);
  EXPECT_THAT(found({{"", ""}}, lengthy), IsEmpty());
}

}  // namespace
}  // namespace nanscope::gui
