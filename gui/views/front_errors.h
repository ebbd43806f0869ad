#pragma once
#include <string>

#include "gui/cell_map.h"
#include "gui/prepare/error_map.h"

/// What the front draws of a dump that is checked against its model.
namespace nanscope::gui {

/// The window's theme, whose cells are coloured as distances in units of the bound: quiet up to 1, loud beyond.
Theme error_theme(const Theme& theme);

/// What the colours mean.
void draw_error_key(const ViewContext& context, Area row);

/// Above the cells: outputs that were not checked are hatched, those that nothing known explains are framed.
void draw_error_marks(const GridScene& scene, const ErrorMap& errors);

/// At the mouse. Answers the same in one line.
std::string error_tooltip(const ViewContext& context, const Place& place, const std::string& token, Cell cell,
                          const ErrorSpan* span);

}  // namespace nanscope::gui
