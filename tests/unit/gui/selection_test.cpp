#include "gui/selection.h"

#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

Selection at(std::int64_t request) {
  Selection selection;
  selection.place.request = request;
  return selection;
}

TEST(SelectionHistory, GoesBackAndForward) {
  SelectionHistory history;
  EXPECT_FALSE(history.can_go_back());
  history.choose(at(1));
  history.choose(at(2));
  history.back();
  EXPECT_EQ(history.current(), at(1));
  EXPECT_TRUE(history.can_go_forward());
  history.forward();
  EXPECT_EQ(history.current(), at(2));
  history.forward();
  EXPECT_EQ(history.current(), at(2)) << "nothing is ahead";
}

TEST(SelectionHistory, ChoosingForgetsWhatWasAhead) {
  SelectionHistory history;
  history.choose(at(1));
  history.choose(at(2));
  history.back();
  history.choose(at(3));
  EXPECT_FALSE(history.can_go_forward());
  history.back();
  EXPECT_EQ(history.current(), at(1));
}

TEST(SelectionHistory, ChoosingTheSameIsNoStop) {
  SelectionHistory history;
  history.choose(at(1));
  history.choose(at(1));
  history.back();
  EXPECT_EQ(history.current(), Selection{});
}

TEST(SelectionHistory, MovesWithoutAStop) {
  SelectionHistory history;
  history.choose(at(1));
  history.move(at(2));
  history.back();
  EXPECT_EQ(history.current(), Selection{});
  history.forward();
  EXPECT_EQ(history.current(), at(2));
}

TEST(SelectionHistory, KeepsABoundedPast) {
  SelectionHistory history;
  const auto many = static_cast<std::int64_t>(SelectionHistory::kKept) * 2;
  for (std::int64_t i = 0; i < many; ++i) history.choose(at(i));
  std::size_t back = 0;
  for (; history.can_go_back(); ++back) history.back();
  EXPECT_EQ(back, SelectionHistory::kKept - 1);
}

}  // namespace
}  // namespace nanscope::gui
