#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gui/commands.h"
#include "gui/palette_match.h"
#include "gui/prepare/run_map.h"
#include "gui/prepare/story.h"

namespace nanscope::gui {

/// A place as it is typed, which may be wrong.
struct TypedPlace {
  std::string text;
};

/// A recording to stand beside the one that is open.
struct BesideFile {
  std::filesystem::path path;
};

/// A line of the palette, and what choosing it does.
struct PaletteItem {
  std::string title;
  std::string detail;
  std::string keys;
  std::variant<Command, Selection, TypedPlace, std::filesystem::path, BesideFile> target;
};

/// What there is to choose from: commands, the links of the cascade, requests, the ops of the step that is
/// selected, recordings. Map and story may be null.
std::vector<PaletteItem> palette_items(std::span<const Command> commands, const RunMap* map, const Story* story,
                                       const Place& selected, std::span<const std::filesystem::path> recent);

/// A line that is chosen, and its letters that were typed.
struct PaletteLine {
  PaletteItem item;
  std::vector<std::size_t> bytes;
};

/// The best lines for a query, the best first; a query that is a place or a path of a recording is offered as it is.
std::vector<PaletteLine> palette_lines(std::span<const PaletteItem> items, std::string_view query, std::size_t most);

}  // namespace nanscope::gui
