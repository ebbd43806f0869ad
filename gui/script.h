#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "gui/platform/platform.h"

/// What a person would do with the window, as text: a step a line. docs/gui-scripts.md describes it.
namespace nanscope::gui {

/// Something on screen.
struct Target {
  enum class Kind {
    point,  ///< at x, y
    text,   ///< words that are drawn, the `nth` of them
    item,   ///< a button or the like that has a name
    cell,   ///< of a place, in a view
  };
  Kind kind = Kind::point;
  float x = 0;
  float y = 0;
  int nth = 1;
  std::string words;  ///< text, name or place
  std::string view = "front";
  bool operator==(const Target&) const = default;
};

struct KeyPress {
  int key = 0;  ///< of GLFW's
  Modifiers held;
};

enum class Verb {
  select,
  view,
  key,
  type,
  click,
  move,
  drag_to,
  drag_by,
  wheel,
  drop,
  resize,
  clipboard,
  wait_settled,
  wait_seconds,
  picture,
  where,
  expect_place,
  expect_view,
  expect_text,
  expect_no_text,
  expect_file,
  expect_clipboard,
  close,
};

struct ScriptStep {
  int line = 0;
  Verb verb = Verb::close;
  std::string words;  ///< place, name, text or path
  Target target;
  Target to;          ///< of a drag; of drag_by the distance
  double amount = 0;  ///< seconds, notches
  Extent size;
  KeyPress press;
  int button = 0;  ///< 0 left, 1 right
  int clicks = 1;
};

struct Script {
  std::filesystem::path path;
  std::vector<ScriptStep> steps;
};

/// Errors name the line and what was expected there.
Result<Script> parse_script(std::string_view text, const std::filesystem::path& path);
/// Errors also: the file cannot be read.
Result<Script> read_script(const std::filesystem::path& path);

}  // namespace nanscope::gui
