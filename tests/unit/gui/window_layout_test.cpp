#include "gui/window_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/tab_strip.h"
#include "gui/top_bar_layout.h"

namespace nanscope::gui {
namespace {

bool apart(Area a, Area b) { return a.right() <= b.x || b.right() <= a.x || a.bottom() <= b.y || b.bottom() <= a.y; }

void expect_tiling(const WindowAreas& areas, Area window) {
  const Area all[] = {areas.top_bar, areas.left, areas.upper, areas.lower, areas.right, areas.status};
  for (const Area& a : all) {
    if (a.width <= 0) continue;
    EXPECT_GE(a.x, window.x);
    EXPECT_GE(a.y, window.y);
    EXPECT_LE(a.right(), window.right() + 0.01F);
    EXPECT_LE(a.bottom(), window.bottom() + 0.01F);
    for (const Area& b : all) {
      if (&a == &b || b.width <= 0) continue;
      EXPECT_TRUE(apart(a, b)) << a.x << ' ' << a.y << " and " << b.x << ' ' << b.y;
    }
  }
}

TEST(WindowLayout, PanesDoNotOverlapAndStayInTheWindow) {
  for (const float scale : {1.0F, 2.0F}) {
    for (const Area size : {Area{0, 0, 1600, 1000}, Area{0, 0, 1280, 800}, Area{0, 0, 900, 700}, Area{0, 0, 887, 700},
                            Area{0, 0, 700, 500}}) {
      const Area window{0, 0, size.width * scale, size.height * scale};
      Shares shares;
      expect_tiling(lay_out(window, shares, scale, false), window);
      expect_tiling(lay_out(window, shares, scale, true), window);
    }
  }
}

TEST(WindowLayout, SharesThatLeaveTooLittleAreCorrected) {
  Shares shares{0.9F, 0.9F, 0.01F};
  const Area window{0, 0, 1600, 1000};
  const WindowAreas areas = lay_out(window, shares, 1, false);
  expect_tiling(areas, window);
  EXPECT_GE(areas.upper.width, 399);
  EXPECT_GE(areas.upper.height, 199);
  EXPECT_GE(areas.lower.height, 199);
  EXPECT_LT(shares.left, 0.5F) << "dragging on must start from where the splitter is";
}

TEST(WindowLayout, EnlargingGivesTheLowerPaneAllButTheList) {
  Shares shares;
  const WindowAreas areas = lay_out({0, 0, 1600, 1000}, shares, 1, true);
  EXPECT_EQ(areas.upper.width, 0);
  EXPECT_EQ(areas.right.width, 0);
  EXPECT_EQ(areas.lower.right(), 1600);
  EXPECT_EQ(areas.lower.y, areas.left.y);
  EXPECT_EQ(areas.lower.height, areas.left.height);
}

TEST(WindowLayout, ANarrowWindowLeavesOutTheList) {
  Shares shares;
  const Shares before = shares;
  const WindowAreas areas = lay_out({0, 0, 700, 500}, shares, 1, false);
  EXPECT_EQ(areas.left.width, 0);
  EXPECT_EQ(areas.left_gap.width, 0);
  EXPECT_EQ(areas.upper.x, 0);
  EXPECT_GE(areas.upper.width, 390);
  EXPECT_GE(areas.right.width, 290);
  EXPECT_EQ(shares.left, before.left) << "a wider window shows it as it was";
  EXPECT_GT(lay_out({0, 0, 900, 700}, shares, 1, false).left.width, 0);
}

TEST(WindowLayout, TooSmallIsSmallerThanCanBeRead) {
  EXPECT_FALSE(too_small({0, 0, 700, 500}, 1));
  EXPECT_TRUE(too_small({0, 0, 699, 500}, 1));
  EXPECT_TRUE(too_small({0, 0, 700, 499}, 1));
  EXPECT_TRUE(too_small({0, 0, 1300, 1000}, 2));
}

TEST(TopBarLayout, NothingIsCutOffOrOverlapsAtAnyWidth) {
  for (const float scale : {1.0F, 1.5F, 2.0F}) {
    for (float width = kLeastWindowWidth; width <= 2600; width += 1) {
      const Area bar{0, 0, width * scale, 52 * scale};
      const TopBarAreas areas = lay_out_top_bar(bar, scale);
      const Area in_order[] = {areas.home, areas.file,     areas.back, areas.forward, areas.place, areas.copy,
                               areas.play, areas.scrubber, areas.next, areas.origin,  areas.find};
      float from = bar.x;
      for (const Area& area : in_order) {
        ASSERT_GE(area.x, from) << width;
        ASSERT_GE(area.width, 30 * scale) << width;
        from = area.right();
      }
      ASSERT_LE(from, bar.right() - 17 * scale) << width;
      ASSERT_GE(areas.place.width, 189 * scale) << width;
    }
  }
}

TEST(TopBarLayout, AWideBarHasWordsAndGivesTheRestToTheScrubber) {
  const TopBarAreas wide = lay_out_top_bar({0, 0, 1600, 52}, 1);
  EXPECT_TRUE(wide.words);
  EXPECT_EQ(wide.place.width, 330);
  EXPECT_GT(wide.scrubber.width, 500);
  EXPECT_FALSE(lay_out_top_bar({0, 0, 900, 52}, 1).words);
}

TEST(Tabs, AreAllShownWhereTheyFit) {
  const float widths[] = {50, 50, 50};
  EXPECT_THAT(tabs_that_fit(widths, 0, 150, 40), ::testing::ElementsAre(0, 1, 2));
}

TEST(Tabs, TheLastOnesGiveWayButNeverTheCurrentOne) {
  const float widths[] = {50, 50, 50, 50};
  EXPECT_THAT(tabs_that_fit(widths, 0, 190, 40), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(tabs_that_fit(widths, 3, 190, 40), ::testing::ElementsAre(0, 1, 3));
  EXPECT_THAT(tabs_that_fit(widths, 2, 149, 40), ::testing::ElementsAre(0, 2));
  EXPECT_THAT(tabs_that_fit(widths, 2, 10, 40), ::testing::ElementsAre(2));
  EXPECT_TRUE(tabs_that_fit({}, 0, 10, 40).empty());
}

}  // namespace
}  // namespace nanscope::gui
