#include "gui/cell_paint.h"

#include <imgui.h>

#include <cmath>

namespace nanscope::gui {

void fill_pattern(const Fonts& fonts, Area area, Pattern pattern, Color ink) {
  const int id = fonts.patterns[static_cast<std::size_t>(pattern)];
  if (pattern == Pattern::none || fonts.pattern_side == 0) return;
  const ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  const ImFontAtlasCustomRect& tile = atlas.CustomRects[id];
  const auto side = static_cast<float>(fonts.pattern_side);
  const float left = std::round(area.x);
  const float top = std::round(area.y);
  const float right = std::round(area.right());
  const float bottom = std::round(area.bottom());
  const auto u = [&](float pixels) { return (static_cast<float>(tile.X) + pixels) * atlas.TexUvScale.x; };
  const auto v = [&](float pixels) { return (static_cast<float>(tile.Y) + pixels) * atlas.TexUvScale.y; };
  for (float y = top; y < bottom;) {
    const float from_y = y - std::floor(y / side) * side;
    const float high = std::min(bottom - y, side - from_y);
    for (float x = left; x < right;) {
      const float from_x = x - std::floor(x / side) * side;
      const float wide = std::min(right - x, side - from_x);
      ImGui::GetWindowDrawList()->AddImage(atlas.TexID, {x, y}, {x + wide, y + high}, {u(from_x), v(from_y)},
                                           {u(from_x + wide), v(from_y + high)}, ink.packed());
      x += wide;
    }
    y += high;
  }
}

void fill_cell(const Theme& theme, const Fonts& fonts, Area area, Cell cell, float rounding) {
  const Color ground = theme.cell(cell);
  fill(area, ground, rounding);
  const Pattern pattern = theme.pattern(cell);
  if (pattern != Pattern::none) fill_pattern(fonts, area, pattern, pattern_ink(pattern, ground));
}

}  // namespace nanscope::gui
