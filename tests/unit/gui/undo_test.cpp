#include "gui/undo.h"

#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

TEST(UndoStack, GoesBackAndForward) {
  UndoStack<int> stack(0);
  EXPECT_FALSE(stack.undo());
  stack.note(1);
  stack.note(1);  // no step
  stack.note(2);
  EXPECT_EQ(stack.undo(), 1);
  stack.note(1);  // as the window does once it is there
  EXPECT_EQ(stack.undo(), 0);
  EXPECT_FALSE(stack.undo());
  EXPECT_EQ(stack.redo(), 1);
  EXPECT_EQ(stack.redo(), 2);
  EXPECT_FALSE(stack.redo());
}

TEST(UndoStack, AnotherChangeForgetsWhatWasUndone) {
  UndoStack<int> stack(0);
  stack.note(1);
  EXPECT_EQ(stack.undo(), 0);
  stack.note(5);
  EXPECT_FALSE(stack.redo());
  EXPECT_EQ(stack.undo(), 0);
}

TEST(UndoStack, KeepsOnlySoManySteps) {
  UndoStack<int> stack(0);
  for (int i = 1; i <= 1000; ++i) stack.note(i);
  std::size_t steps = 0;
  while (stack.undo()) ++steps;
  EXPECT_EQ(steps, UndoStack<int>::kMostSteps);
}

}  // namespace
}  // namespace nanscope::gui
