#include "gui/window_layout.h"

#include <gtest/gtest.h>

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
    for (const Area size : {Area{0, 0, 1600, 1000}, Area{0, 0, 1280, 800}, Area{0, 0, 900, 700}}) {
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

}  // namespace
}  // namespace nanscope::gui
