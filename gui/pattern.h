#pragma once
#include <cstdint>

#include "gui/color.h"

namespace nanscope::gui {

/// What is drawn on cells of a kind, so that their colour is not needed to know it.
enum class Pattern : std::uint8_t {
  none,
  crossed,       ///< lines both ways
  slanted,       ///< lines from the lower left to the upper right
  back_slanted,  ///< lines from the upper left to the lower right
  level,         ///< level lines
  upright,       ///< upright lines
  dotted,        ///< many dots
  dashed,        ///< short level lines, far apart
  sparse,        ///< few dots
};

inline constexpr int kPatterns = 9;
/// Every pattern is the same after so many pixels, in both directions.
inline constexpr int kPatternPeriod = 40;

/// Whether a pixel of the pattern is inked. The pattern goes on without end: all cells of a kind show parts of it.
bool inked(Pattern pattern, int x, int y);

/// Black or white, whatever is further from `ground`, so strong that the pattern can be seen and the colour as well.
/// Patterns of what is not bad are weaker.
Color pattern_ink(Pattern pattern, Color ground);

}  // namespace nanscope::gui
