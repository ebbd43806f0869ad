#pragma once
#include <string>

#include "gui/cell_map.h"
#include "gui/prepare/run_difference.h"
#include "gui/views/twin_parts.h"

/// What the front draws when another run stands beside.
namespace nanscope::gui {

/// The window's theme, whose cells are coloured as differences of cells. What is worse here keeps its colour.
Theme front_difference_theme(const Theme& theme);

/// Which side is shown, and how the two differ in one sentence.
void draw_front_parts(const ViewContext& context, Area row, TwinPart& part);

/// The kinds of difference in words.
void draw_difference_key(const ViewContext& context, Area row);

/// "clipped", "healthy, largest |x| 1.3 to 1.8"
std::string health_words(Cell cell);

/// At the mouse: a cell in both runs, and how they differ. Answers the same in one line.
std::string cell_pair_tooltip(const ViewContext& context, const Place& place, const std::string& token, Cell here,
                              Cell there, Cell difference);

}  // namespace nanscope::gui
