#pragma once
#include <imgui.h>

#include <string>
#include <string_view>
#include <vector>

#include "gui/color.h"

/// Drawing on ImGui's current window, in pixels of the screen.
namespace nanscope::gui {

struct Area {
  float x = 0;
  float y = 0;
  float width = 0;
  float height = 0;

  float right() const { return x + width; }
  float bottom() const { return y + height; }
  ImVec2 min() const { return {x, y}; }
  ImVec2 max() const { return {right(), bottom()}; }
  Area inset(float by) const { return inset(by, by); }
  Area inset(float by_x, float by_y) const { return {x + by_x, y + by_y, width - 2 * by_x, height - 2 * by_y}; }
  bool holds(ImVec2 point) const { return point.x >= x && point.x < right() && point.y >= y && point.y < bottom(); }
};

void fill(Area area, Color color, float rounding = 0);
void outline(Area area, Color color, float thickness = 1, float rounding = 0);
void line(ImVec2 from, ImVec2 to, Color color, float thickness = 1);

ImVec2 text_size(const ImFont* font, std::string_view text);
/// With its top left at `at`.
void text(const ImFont* font, ImVec2 at, Color color, std::string_view text);
/// On one line, vertically centred, cut by an ellipsis when it is too wide.
void label(const ImFont* font, Area area, Color color, std::string_view text, float align = 0);
/// With an ellipsis in its middle when it is too wide: names that begin alike differ at their ends.
std::string shortened(const ImFont* font, std::string_view text, float width);
/// Lines of at most `width` pixels, broken at spaces, and within words that are wider than a line; with `max_lines` the
/// last one ends in an ellipsis when there is more.
std::vector<std::string> wrap(const ImFont* font, std::string_view text, float width, int max_lines = 0);

/// Text of a recording, which is not trusted to be UTF-8: escapes where it is not.
std::string printable(std::string_view bytes);
/// The same between quotation marks.
std::string in_quotes(std::string_view bytes);

}  // namespace nanscope::gui
