#include "gui/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace nanscope::gui {
namespace {

using ::testing::Contains;
using ::testing::Field;

CommandViews nine_views() {
  return {.titles = {"Front", "Cascade", "Tensor", "Bits", "Scales", "Why", "What if", "Requests", "Kernels"},
          .tabs = {2, 3, 4, 5, 6, 7, 8},
          .shown = 4,
          .dark = true};
}

TEST(Commands, NoKeyDoesTwoThings) {
  std::set<std::string> keys;
  for (const Command& command : all_commands(nine_views())) {
    for (const Chord& chord : command.chords) EXPECT_TRUE(keys.insert(to_string(chord)).second) << to_string(chord);
  }
  EXPECT_GT(keys.size(), 20U);
}

TEST(Commands, EveryOneIsOfferedOrHasAKey) {
  std::set<std::string> words;
  for (const Command& command : all_commands(nine_views())) {
    EXPECT_TRUE(!command.words.empty() || !command.chords.empty() || !command.by_hand.empty());
    EXPECT_FALSE(command.group.empty());
    if (!command.words.empty()) {
      EXPECT_TRUE(words.insert(command.words).second) << command.words;
    }
  }
  for (const std::string& view : nine_views().titles) {
    EXPECT_EQ(words.count("Save a picture of " + view), 1U);
    EXPECT_EQ(words.count("Save the table of " + view + " as CSV"), 1U);
  }
  EXPECT_EQ(words.count("Save a picture of the window"), 1U);
}

TEST(Commands, SavingByKeyIsAboutTheShownView) {
  for (const Command& command : all_commands(nine_views())) {
    if (command.chords.empty()) continue;
    if (command.action == Action::save_picture || command.action == Action::save_table) {
      EXPECT_EQ(command.view, 4U);
    }
  }
}

TEST(Commands, OneViewAloneHasNoTabs) {
  for (const Command& command : all_commands({.titles = {"Why"}, .tabs = {}, .shown = 0, .dark = false})) {
    EXPECT_NE(command.action, Action::show_view);
    EXPECT_NE(command.action, Action::enlarge);
  }
}

TEST(KeyRows, ShareARowWithTheirNeighbours) {
  const std::vector<KeyRow> rows = key_rows(all_commands(nine_views()));
  const auto row = [](const std::string& keys, const std::string& words) {
    return ::testing::AllOf(Field(&KeyRow::keys, keys), Field(&KeyRow::words, words));
  };
  EXPECT_THAT(rows, Contains(row("Left, Right", "step by op")));
  EXPECT_THAT(rows, Contains(row("1 to 7", "choose the view below the front")));
  EXPECT_THAT(rows, Contains(row("? or F1", "these keys")));
  EXPECT_THAT(rows, Contains(row("Ctrl+Shift+S", "save its table")));
  EXPECT_THAT(rows, Contains(row("Right double click", "show all of a map")));
  EXPECT_THAT(rows, Contains(row("", "The run")));
}

TEST(KeyRows, ListEveryKey) {
  std::string all;
  for (const KeyRow& row : key_rows(all_commands(nine_views()))) all += row.keys + '\n';
  for (const Command& command : all_commands(nine_views())) {
    if (command.action == Action::show_view || command.chords.empty()) continue;
    EXPECT_NE(all.find(keys_of(command)), std::string::npos) << keys_of(command);
  }
}

}  // namespace
}  // namespace nanscope::gui
