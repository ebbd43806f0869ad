#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gui/theme.h"

/// All that can be done with the window, in one table: keys, the palette and the list of keys are made from it.
namespace nanscope::gui {

enum class Action : std::uint8_t {
  none,  ///< done with the mouse: only listed
  play,
  step_back,
  step_forward,
  next_event,
  last_event,
  slower,
  faster,
  origin,
  next_bad,
  last_bad,
  first_difference,
  back,
  forward,
  type_place,
  copy_place,
  copy_link,
  pin,
  paste_place,
  undo,
  redo,
  show_view,
  enlarge,
  switch_theme,
  choose_palette,
  zoom_in,
  zoom_out,
  zoom_reset,
  settings,
  save_picture,
  save_table,
  save_diagnosis,
  open,
  open_beside,
  start_screen,
  remove_beside,
  palette,
  list_keys,
  close_topmost,
};

/// A key with what is held down, or a character however it is typed.
struct Chord {
  int key = 0;  ///< as GLFW numbers it
  bool control = false;
  bool shift = false;
  bool alt = false;
  char typed = 0;    ///< instead of a key: its place differs between keyboards
  bool told = true;  ///< in lists; not a second place of a key
};
/// "Ctrl+Shift+S"
std::string to_string(const Chord& chord);

struct Command {
  Action action = Action::none;
  std::size_t view = 0;           ///< of those that are about a view: which, as CommandViews counts
  Vision vision = Vision::usual;  ///< of choose_palette
  std::string_view group;
  std::string words;          ///< in the palette, as an order; empty: not offered there
  std::string row;            ///< in the list of keys, after "Space"; neighbours with the same words share a row
  std::vector<Chord> chords;  ///< any of them
  std::string by_hand;        ///< instead of chords, in the list of keys: "Wheel, drag"
  bool repeats = false;       ///< while the key is held
};

/// What the table depends on.
struct CommandViews {
  std::vector<std::string> titles;
  std::vector<std::size_t> tabs;  ///< indices in `titles` of those below the front
  std::size_t shown = 0;          ///< index in `titles` of the one that keys are about
  bool dark = true;
  Vision vision = Vision::usual;  ///< that the colours are for
  bool beside = false;            ///< a run stands beside
};

/// The key of a tab, "1" to "9" and "0"; empty beyond.
std::string tab_digit(std::size_t tab);

/// `save_picture` and `save_table` of the shown view have keys; with `view` = titles.size() the picture
/// is of the whole window.
std::vector<Command> all_commands(const CommandViews& views);

/// A line of the list of keys; `keys` is empty in the title of a group.
struct KeyRow {
  std::string keys;
  std::string words;
};
std::vector<KeyRow> key_rows(std::span<const Command> commands);

/// "? or F1"; empty when there is no key.
std::string keys_of(const Command& command);

}  // namespace nanscope::gui
