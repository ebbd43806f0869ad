#include "gui/prepare/viewport.h"

#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

TEST(Viewport, ShowsAllOfANewGrid) {
  Viewport port;
  port.set_grid(100, 20);
  EXPECT_TRUE(port.shows_all());
  EXPECT_EQ(port.range(), (FrontRange{0, 100, 0, 20}));
}

TEST(Viewport, ZoomKeepsThePointUnderTheMouse) {
  Viewport port;
  port.set_grid(1000, 1000);
  const double before = port.left() + 0.3 * port.width();
  port.zoom(4, 2, 0.3, 0.8);
  EXPECT_DOUBLE_EQ(port.left() + 0.3 * port.width(), before);
  EXPECT_DOUBLE_EQ(port.width(), 250);
  EXPECT_DOUBLE_EQ(port.height(), 500);
}

TEST(Viewport, StaysInsideTheGrid) {
  Viewport port;
  port.set_grid(100, 20);
  port.zoom(2, 2, 0.5, 0.5);
  port.pan(10, -10);
  EXPECT_EQ(port.range(), (FrontRange{50, 100, 0, 10}));
  port.zoom(1e-9, 1e-9, 0.5, 0.5);
  EXPECT_TRUE(port.shows_all());
  port.zoom(1e9, 1e9, 0.5, 0.5);
  EXPECT_DOUBLE_EQ(port.width(), 4);
}

TEST(Viewport, KeepsItsPlaceWhileTheGridIsTheSame) {
  Viewport port;
  port.set_grid(100, 20);
  port.zoom(2, 2, 0, 0);
  port.set_grid(100, 20);
  EXPECT_FALSE(port.shows_all());
  port.set_grid(101, 20);
  EXPECT_TRUE(port.shows_all());
}

TEST(Viewport, RevealsACellAndStaysWhereItIsSeen) {
  Viewport port;
  port.set_grid(100, 100);
  port.zoom(10, 10, 0, 0);
  port.reveal(5, 50);
  EXPECT_EQ(port.left(), 0) << "the column is seen";
  EXPECT_LE(port.top(), 50);
  EXPECT_GE(port.top() + port.height(), 51);
  port.reveal(99, 99);
  EXPECT_EQ(port.left() + port.width(), 100);
}

}  // namespace
}  // namespace nanscope::gui
