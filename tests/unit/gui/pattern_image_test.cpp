#include "gui/prepare/pattern_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nanscope::gui {
namespace {

CellLook look() {
  CellLook look;
  look.patterns[kNan] = Pattern::crossed;
  look.patterns[kInf] = Pattern::level;
  look.inks[kNan] = 0xFF000001;
  look.inks[kInf] = 0xFF000002;
  return look;
}

/// Three columns: healthy, NaN, Inf; two rows.
FrontImage image() {
  FrontImage image;
  image.range = {0, 3, 0, 2};
  image.width = 3;
  image.height = 2;
  image.texels = {9, kNan, kInf, 9, kNan, 9};
  return image;
}

TEST(PatternImage, InksTheCellsOfAKindAndNoOther) {
  Viewport port;
  port.set_grid(3, 2);
  const PatternScreen screen{.left = 7, .top = 3, .width = 60, .height = 40, .dot = 1};
  const auto pixels = pattern_image(image(), look(), port, screen);
  ASSERT_EQ(pixels.size(), 60U * 40);
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 60; ++x) {
      const Pattern pattern = x < 20   ? Pattern::none
                              : x < 40 ? Pattern::crossed
                              : y < 20 ? Pattern::level
                                       : Pattern::none;
      const std::uint32_t ink = x < 40 ? 0xFF000001 : 0xFF000002;
      EXPECT_EQ(pixels[static_cast<std::size_t>(y * 60 + x)], inked(pattern, x + 7, y + 3) ? ink : 0) << x << " " << y;
    }
  }
}

TEST(PatternImage, FollowsTheViewport) {
  FrontImage wide;
  wide.range = {0, 12, 0, 1};
  wide.width = 12;
  wide.height = 1;
  wide.texels = {9, 9, kInf, kInf, kNan, kNan, kNan, kNan, kInf, 9, 9, 9};
  Viewport port;
  port.set_grid(12, 1);
  port.zoom(3, 1, 0.5, 0.5);  // columns 4 to 7
  const auto pixels = pattern_image(wide, look(), port, {.width = 40, .height = 20});
  EXPECT_TRUE(
      std::all_of(pixels.begin(), pixels.end(), [](std::uint32_t ink) { return ink == 0 || ink == 0xFF000001; }));
  EXPECT_GT(std::count(pixels.begin(), pixels.end(), 0xFF000001), 40 * 20 / 8);
}

TEST(PatternImage, IsNotNeededWhereNothingHasAPattern) {
  FrontImage healthy = image();
  EXPECT_TRUE(has_patterns(healthy, look()));
  std::fill(healthy.texels.begin(), healthy.texels.end(), Cell{9});
  EXPECT_FALSE(has_patterns(healthy, look()));
}

TEST(Pattern, NoTwoAreAlikeWithinASmallCell) {
  constexpr int kSide = 13;  // of a step's square
  for (int one = 0; one < kPatterns; ++one) {
    for (int other = one + 1; other < kPatterns; ++other) {
      int differ = 0;
      for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
          differ += inked(static_cast<Pattern>(one), x, y) != inked(static_cast<Pattern>(other), x, y);
        }
      }
      EXPECT_GT(differ, 4) << one << " " << other;
    }
  }
}

TEST(Pattern, GoesOnWithoutASeam) {
  for (int pattern = 0; pattern < kPatterns; ++pattern) {
    for (int y = -kPatternPeriod; y < kPatternPeriod; ++y) {
      for (int x = -kPatternPeriod; x < kPatternPeriod; ++x) {
        const auto at = static_cast<Pattern>(pattern);
        ASSERT_EQ(inked(at, x, y), inked(at, x + kPatternPeriod, y + kPatternPeriod)) << pattern;
      }
    }
  }
}

}  // namespace
}  // namespace nanscope::gui
