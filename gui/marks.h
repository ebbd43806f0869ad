#pragma once
#include <string>
#include <string_view>

#include "gui/views/view.h"

/// Small things that several views draw.
namespace nanscope::gui {

/// Words on a coloured ground, with its right edge at `right`. Answers its width.
float chip_left_of(const ViewContext& context, float right, float y, float height, std::string_view words, Color ground,
                   Color ink);
float chip_width(const ViewContext& context, std::string_view words);
void chip(const ViewContext& context, Area area, std::string_view words, Color ground, Color ink);
/// One that is pressed; true when it was. `on`: what it stands for is shown.
bool chip_button(const ViewContext& context, Area area, std::string_view words, bool on);
/// Too small for a pattern: a shape of its own for each kind of cell, on its colour.
void draw_sign(const ViewContext& context, Area area, Cell cell);
/// What is read on the colour of a kind of health.
Color ink_on(const Theme& theme, Cell cell);
/// What is read on a strong colour.
Color ink_over(const Theme& theme, Color ground);

/// Next to the pointer: a title in monospace, below it lines of words.
void tooltip(const ViewContext& context, const std::string& title, const std::vector<std::string>& lines);
void tooltip(const Fonts& fonts, float scale, const std::string& title, const std::vector<std::string>& lines);

/// A tooltip over an area that shows a number.
void explain(const ViewContext& context, Area area, const std::string& title, std::string_view words);
/// What a number of a tensor means, by its name; empty: the name says it.
std::string_view number_meaning(std::string_view name);

/// In the middle of a view that has nothing to show: what, and why or what to do.
void notice(const ViewContext& context, Area area, std::string_view title, std::string_view words);

/// Names to the left, numbers to the right, in `columns` columns. Answers the height, also when it
/// only measures.
float number_table(const ViewContext& context, Area area, int columns, std::size_t most,
                   const std::vector<std::pair<std::string, std::string>>& numbers, bool draw);

}  // namespace nanscope::gui
