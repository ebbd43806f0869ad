#pragma once
#include "gui/paint.h"
#include "gui/theme.h"

/// Areas that are coloured by health.
namespace nanscope::gui {

/// The pattern goes on from area to area, whole pixels of the screen.
void fill_pattern(const Fonts& fonts, Area area, Pattern pattern, Color ink);
/// The colour of a cell and its pattern.
void fill_cell(const Theme& theme, const Fonts& fonts, Area area, Cell cell, float rounding = 0);

}  // namespace nanscope::gui
