#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "gui/cell.h"
#include "gui/color.h"

struct ImFont;

namespace nanscope::gui {

/// Colours, distinguishable with any colour vision: the kinds of health differ in lightness as well
/// as in hue, the healthy ramp stays in blue.
struct Theme {
  std::string_view name;
  bool dark = true;
  Color background;  ///< behind the panes
  Color panel;
  Color raised;  ///< cards, fields, buttons
  Color hovered;
  Color line;  ///< separators
  Color text;
  Color muted;   ///< second-rank text
  Color accent;  ///< the selection, and what can be clicked
  Color on_bad;  ///< text on the colours of NaN and Inf
  Color sign_bit;
  Color exponent_bits;
  Color mantissa_bits;  ///< and the bits of integers
  std::array<Color, kCells> cells;
  std::array<Color, 6> series;  ///< curves that stand in one chart

  Color cell(Cell cell) const { return cells[cell < kCells ? cell : kNan]; }
  /// Of a field of a number by its letter: S, E, M or I.
  Color field(char letter) const {
    if (letter == 'S') return sign_bit;
    return letter == 'E' ? exponent_bits : mantissa_bits;
  }
};

Theme dark_theme();
Theme light_theme();
/// "dark" or "light".
std::optional<Theme> find_theme(std::string_view name);

/// The faces of the window; numbers and places are set in monospace so that columns align.
struct Fonts {
  ImFont* text = nullptr;
  ImFont* small = nullptr;
  ImFont* title = nullptr;
  ImFont* mono = nullptr;
  ImFont* mono_small = nullptr;
};

/// Loads the system's DejaVu at `scale`, or ImGui's own face where it is not installed. To be called
/// once, before the first frame.
Fonts load_fonts(float scale);
/// Colours and spacing of ImGui's widgets.
void apply_style(const Theme& theme, float scale);

}  // namespace nanscope::gui
