#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "gui/pattern.h"
#include "gui/prepare/front_image.h"
#include "gui/prepare/viewport.h"

namespace nanscope::gui {

/// How the kinds of cells look.
struct CellLook {
  std::array<Pattern, kCells> patterns{};
  std::array<std::uint32_t, kCells> inks{};  ///< as Color::packed() gives them
  bool operator==(const CellLook&) const = default;
};

/// Where a grid is on the screen, in pixels.
struct PatternScreen {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  int dot = 1;  ///< pixels of the screen that a pixel of a pattern takes
  bool operator==(const PatternScreen&) const = default;
};

/// Whether any texel has a pattern.
bool has_patterns(const FrontImage& image, const CellLook& look);

/// A pixel a pixel of the screen, row-major: the ink of the pattern where one is inked, 0 elsewhere. `port` is what the
/// screen shows of the grid.
std::vector<std::uint32_t> pattern_image(const FrontImage& image, const CellLook& look, const Viewport& port,
                                         const PatternScreen& screen);

}  // namespace nanscope::gui
