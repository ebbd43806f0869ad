#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gui/cell.h"
#include "gui/color.h"
#include "gui/pattern.h"

struct ImFont;

namespace nanscope::gui {

/// Whose eyes the colours of the kinds of health are chosen for. Patterns tell the kinds apart in each of them.
enum class Vision : std::uint8_t { usual, protan, deutan, tritan };
inline constexpr std::array<Vision, 4> kVisions = {Vision::usual, Vision::protan, Vision::deutan, Vision::tritan};
/// "usual", "protan", "deutan", "tritan": as the option --palette takes them.
std::string_view name(Vision vision);
std::optional<Vision> find_vision(std::string_view name);
/// For people: "Colours without red, for protanopia".
std::string_view words_of(Vision vision);

/// Colours. The kinds of health differ in lightness as well as in hue, and each has a pattern of its own; the healthy
/// ramp stays in blue.
struct Theme {
  std::string_view name;
  bool dark = true;
  Vision vision = Vision::usual;
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
  std::array<Pattern, kCells> patterns{};  ///< on the cells, so that no kind is told by its colour alone
  std::array<Color, kCells> inks;          ///< text that has the colour of a cell as far as it can be read
  std::array<Color, 6> series;             ///< curves that stand in one chart

  Color cell(Cell cell) const { return cells[cell < kCells ? cell : kNan]; }
  Pattern pattern(Cell cell) const { return patterns[cell < kCells ? cell : kNan]; }
  /// Text on the background, on panels, and on what is raised or pointed at: its contrast is kLeastContrast or more.
  Color ink(Cell cell) const { return inks[cell < kCells ? cell : kNan]; }
  /// Of a field of a number by its letter: S, E, M or I.
  Color field(char letter) const {
    if (letter == 'S') return sign_bit;
    return letter == 'E' ? exponent_bits : mantissa_bits;
  }
};

/// Of text and its ground: WCAG 2.1, success criterion 1.4.3 (level AA).
inline constexpr double kLeastContrast = 4.5;

Theme dark_theme(Vision vision = Vision::usual);
Theme light_theme(Vision vision = Vision::usual);
/// "dark" or "light".
std::optional<Theme> find_theme(std::string_view name, Vision vision = Vision::usual);

/// The faces of the window, and its patterns; numbers and places are set in monospace so that columns align.
struct Fonts {
  ImFont* text = nullptr;
  ImFont* small = nullptr;
  ImFont* title = nullptr;
  ImFont* mono = nullptr;
  ImFont* mono_small = nullptr;
  std::array<int, kPatterns> patterns{};  ///< rectangles of the atlas of the faces; 0, of no pattern: none
  int pattern_side = 0;                   ///< of each of them
};

/// Pixels of the screen that a pixel of a pattern takes.
int pattern_dot(float scale);
/// Loads the system's DejaVu at `scale`, or ImGui's own face where it is not installed. To be called
/// between frames; the faces of before are gone.
Fonts load_fonts(float scale);
/// Colours and spacing of ImGui's widgets.
void apply_style(const Theme& theme, float scale);

}  // namespace nanscope::gui
