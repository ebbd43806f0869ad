#include "gui/commands.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace nanscope::gui {
namespace {

constexpr std::size_t kDigits = 10;  ///< tabs beyond have no key

constexpr std::string_view kRun = "The run";
constexpr std::string_view kPlaceGroup = "The place";
constexpr std::string_view kViewsGroup = "The views";
constexpr std::string_view kFiles = "Files";
constexpr std::string_view kHelp = "Help";

Chord key(int number) { return {number, false, false, false, 0, true}; }
Chord control(int number) { return {number, true, false, false, 0, true}; }
Chord shift(int number) { return {number, false, true, false, 0, true}; }
Chord control_shift(int number) { return {number, true, true, false, 0, true}; }
Chord alt(int number) { return {number, false, false, true, 0, true}; }
Chord untold(Chord chord) {
  chord.told = false;
  return chord;
}
Chord typed(char character) { return {0, false, false, false, character, true}; }

std::string name_of(int number) {
  constexpr std::pair<int, std::string_view> kNames[] = {
      {GLFW_KEY_SPACE, "Space"},
      {GLFW_KEY_LEFT, "Left"},
      {GLFW_KEY_RIGHT, "Right"},
      {GLFW_KEY_EQUAL, "+"},
      {GLFW_KEY_KP_ADD, "keypad +"},
      {GLFW_KEY_MINUS, "-"},
      {GLFW_KEY_KP_SUBTRACT, "keypad -"},
      {GLFW_KEY_COMMA, ","},
      {GLFW_KEY_RIGHT_BRACKET, "]"},
      {GLFW_KEY_KP_0, "keypad 0"},
      {GLFW_KEY_ESCAPE, "Esc"},
      {GLFW_KEY_F1, "F1"},
      {GLFW_KEY_HOME, "Home"},
  };
  for (const auto& [one, name] : kNames) {
    if (one == number) return std::string(name);
  }
  return std::string(1, static_cast<char>(number));  // letters and digits have the numbers of their characters
}

/// The table while it is written.
class Writer {
 public:
  explicit Writer(const CommandViews& views) : views_(views) {}

  std::vector<Command> write() && {
    run();
    place();
    views();
    files();
    help();
    return std::move(commands_);
  }

 private:
  Command& add(Action action, std::string_view group, std::string words, std::string row, std::vector<Chord> chords) {
    Command command;
    command.action = action;
    command.group = group;
    command.words = std::move(words);
    command.row = std::move(row);
    command.chords = std::move(chords);
    return commands_.emplace_back(std::move(command));
  }
  void by_hand(std::string_view group, std::string gesture, std::string row) {
    add(Action::none, group, "", std::move(row), {}).by_hand = std::move(gesture);
  }

  void run() {
    add(Action::play, kRun, "Play the run from the selection, or stop", "play it from the selection, or stop",
        {key(GLFW_KEY_SPACE)});
    add(Action::slower, kRun, "Play at half the speed", "play slower, faster", {typed('-')});
    add(Action::faster, kRun, "Play at twice the speed", "play slower, faster", {typed('+')});
    add(Action::step_back, kRun, "One op back", "step by op", {key(GLFW_KEY_LEFT)}).repeats = true;
    add(Action::step_forward, kRun, "One op forward", "step by op", {key(GLFW_KEY_RIGHT)}).repeats = true;
    add(Action::next_event, kRun, "To the next event", "to the next link of the cascade, the one before",
        {key(GLFW_KEY_N)});
    add(Action::last_event, kRun, "To the event before", "to the next link of the cascade, the one before",
        {shift(GLFW_KEY_N)});
    add(Action::origin, kRun, "To the origin", "to the origin of the NaN", {key(GLFW_KEY_O)});
    add(Action::next_bad, kRun, "To the next bad or clipped element",
        "to the next bad element of a tensor, the one before", {key(GLFW_KEY_B)});
    add(Action::last_bad, kRun, "To the bad or clipped element before",
        "to the next bad element of a tensor, the one before", {shift(GLFW_KEY_B)});
    add(Action::first_difference, kRun, "To the first difference from the run beside",
        "to where it parts from the run beside", {key(GLFW_KEY_D)});
  }

  void place() {
    add(Action::back, kPlaceGroup, "Back to the place before", "back, forward", {alt(GLFW_KEY_LEFT)});
    add(Action::forward, kPlaceGroup, "Forward again", "back, forward", {alt(GLFW_KEY_RIGHT)});
    add(Action::type_place, kPlaceGroup, "Type a place", "type a place", {control(GLFW_KEY_L)});
    add(Action::copy_place, kPlaceGroup, "Copy the place", "copy the place", {control(GLFW_KEY_C)});
    add(Action::copy_link, kPlaceGroup, "Copy the command that opens this place", "copy the command that opens it",
        {key(GLFW_KEY_L), control_shift(GLFW_KEY_C)});
    add(Action::pin, kPlaceGroup, "Pin the place, or take the pin away", "pin it, or take the pin away",
        {key(GLFW_KEY_P)});
    add(Action::paste_place, kPlaceGroup, "Go to the copied place", "go to the copied place", {control(GLFW_KEY_V)});
  }

  void views() {
    for (std::size_t i = 0; i < views_.tabs.size(); ++i) {
      const std::size_t view = views_.tabs[i];
      std::vector<Chord> chords;
      if (i < kDigits) chords.push_back(key(tab_digit(i)[0]));
      add(Action::show_view, kViewsGroup, fmt::format("Show {}", views_.titles[view]),
          "choose the view below the front", std::move(chords))
          .view = view;
    }
    if (!views_.tabs.empty()) {
      add(Action::enlarge, kViewsGroup, "Enlarge the view, or back to all", "enlarge it, or back", {key(GLFW_KEY_F)});
    }
    add(Action::switch_theme, kViewsGroup, views_.dark ? "Light theme" : "Dark theme", "light or dark",
        {control(GLFW_KEY_T)});
    for (const Vision vision : kVisions) {
      if (vision == views_.vision) continue;
      add(Action::choose_palette, kViewsGroup, std::string(words_of(vision)), "", {}).vision = vision;
    }
    // Plus has other places on other keyboards, and a Shift on some.
    add(Action::zoom_in, kViewsGroup, "Larger text", "larger text, smaller text",
        {control(GLFW_KEY_EQUAL), untold(control_shift(GLFW_KEY_EQUAL)), untold(control(GLFW_KEY_KP_ADD)),
         untold(control(GLFW_KEY_RIGHT_BRACKET))});
    add(Action::zoom_out, kViewsGroup, "Smaller text", "larger text, smaller text",
        {control(GLFW_KEY_MINUS), untold(control(GLFW_KEY_KP_SUBTRACT))});
    add(Action::zoom_reset, kViewsGroup, "Text of the usual size", "text of the usual size",
        {control(GLFW_KEY_0), untold(control(GLFW_KEY_KP_0))});
    add(Action::settings, kViewsGroup, "Settings: theme, colours, text size, digits", "settings",
        {control(GLFW_KEY_COMMA)});
    add(Action::undo, kViewsGroup, "Undo the last change of pins or layout", "undo pins and layout, do again",
        {control(GLFW_KEY_Z)});
    add(Action::redo, kViewsGroup, "Do again what was undone", "undo pins and layout, do again",
        {control_shift(GLFW_KEY_Z)});
    by_hand(kViewsGroup, "Right click", "what can be done with a cell, a row, a link");
    by_hand(kViewsGroup, "Wheel, drag", "zoom and pan a map");
    by_hand(kViewsGroup, "Shift+wheel, Ctrl+wheel", "zoom its rows, its columns");
    by_hand(kViewsGroup, "Right double click", "show all of a map");
    by_hand(kViewsGroup, "Shift+drag", "take a part of a tensor, for its statistics");
  }

  void files() {
    save_picture(views_.shown, {control(GLFW_KEY_S)});
    save_table(views_.shown, {control_shift(GLFW_KEY_S)});
    add(Action::save_diagnosis, kFiles, "Save the diagnosis as Markdown", "save the diagnosis", {control(GLFW_KEY_D)});
    for (std::size_t view = 0; view <= views_.titles.size(); ++view) {
      if (view != views_.shown) save_picture(view, {});
    }
    for (std::size_t view = 0; view < views_.titles.size(); ++view) {
      if (view != views_.shown) save_table(view, {});
    }
    add(Action::start_screen, kFiles, "To the start screen", "to the start screen, and back", {key(GLFW_KEY_HOME)});
    add(Action::open, kFiles, "Open a recording", "open a recording", {control(GLFW_KEY_O)});
    add(Action::open_beside, kFiles, "Show a recording beside", "show a recording beside", {control_shift(GLFW_KEY_O)});
    if (views_.beside) add(Action::remove_beside, kFiles, "Take away what stands beside", "", {});
    by_hand(kFiles, "Drop, Shift+drop", "open a recording, show it beside");
  }

  void save_picture(std::size_t view, std::vector<Chord> chords) {
    const std::string of = view < views_.titles.size() ? views_.titles[view] : "the window";
    add(Action::save_picture, kFiles, fmt::format("Save a picture of {}", of), "save a picture of the view",
        std::move(chords))
        .view = view;
  }

  void save_table(std::size_t view, std::vector<Chord> chords) {
    add(Action::save_table, kFiles, fmt::format("Save the table of {} as CSV", views_.titles[view]), "save its table",
        std::move(chords))
        .view = view;
  }

  void help() {
    add(Action::palette, kHelp, "", "find a command or a place", {control(GLFW_KEY_P)});
    add(Action::list_keys, kHelp, "List the keys", "these keys", {typed('?'), key(GLFW_KEY_F1)});
    add(Action::close_topmost, kHelp, "", "close what lies on top", {key(GLFW_KEY_ESCAPE)});
  }

  const CommandViews& views_;
  std::vector<Command> commands_;
};

}  // namespace

std::string to_string(const Chord& chord) {
  if (chord.typed != 0) return std::string(1, chord.typed);
  std::string text;
  if (chord.control) text += "Ctrl+";
  if (chord.shift) text += "Shift+";
  if (chord.alt) text += "Alt+";
  return text + name_of(chord.key);
}

std::string keys_of(const Command& command) {
  std::vector<std::string> keys;
  keys.reserve(command.chords.size());
  for (const Chord& chord : command.chords) {
    if (chord.told) keys.push_back(to_string(chord));
  }
  return fmt::format("{}", fmt::join(keys, " or "));
}

std::string tab_digit(std::size_t tab) { return tab < kDigits ? std::to_string((tab + 1) % kDigits) : std::string(); }

std::vector<Command> all_commands(const CommandViews& views) { return Writer(views).write(); }

std::vector<KeyRow> key_rows(std::span<const Command> commands) {
  std::vector<KeyRow> rows;
  std::string_view group;
  for (std::size_t i = 0; i < commands.size();) {
    const Command& first = commands[i];
    std::vector<std::string> keys;
    for (; i < commands.size() && commands[i].row == first.row; ++i) {
      if (std::string one = keys_of(commands[i]); !one.empty()) keys.push_back(std::move(one));
    }
    if (!first.by_hand.empty()) keys.push_back(first.by_hand);
    if (keys.empty()) continue;
    if (first.group != group) rows.push_back({"", std::string(first.group)});
    group = first.group;
    const std::string said =
        keys.size() > 2 ? fmt::format("{} to {}", keys.front(), keys.back()) : fmt::format("{}", fmt::join(keys, ", "));
    rows.push_back({said, first.row});
  }
  return rows;
}

}  // namespace nanscope::gui
