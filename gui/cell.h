#pragma once
#include <cstdint>
#include <string_view>

#include "core/tensor/health.h"

/// The health of a set of elements in one byte. Worse is larger, so that any number of cells shown
/// as one are shown as their maximum: nothing is sampled, nothing bad is lost.
namespace nanscope::gui {

using Cell = std::uint8_t;

/// Healthy magnitudes take the codes from kHealthyFirst to kHealthyLast: ascending largest |x|.
inline constexpr Cell kAbsent = 0;  ///< nothing was recorded
inline constexpr Cell kZero = 1;    ///< every element is zero
inline constexpr Cell kHealthyFirst = 2;
inline constexpr Cell kHealthyLast = 49;
inline constexpr Cell kLowHeadroom = 50;  ///< the largest |x| is close to the largest finite value
inline constexpr Cell kClipped = 51;      ///< values beyond the largest finite one were clipped
inline constexpr Cell kInf = 52;
inline constexpr Cell kNan = 53;
inline constexpr int kCells = 54;

inline constexpr int kHealthySteps = kHealthyLast - kHealthyFirst + 1;
/// Steps a factor of ten; the ramp begins at 10^kRampFrom. What lies outside takes its ends.
inline constexpr int kStepsPerDecade = 8;
inline constexpr int kRampFrom = -2;
inline constexpr int kRampTo = kRampFrom + kHealthySteps / kStepsPerDecade;

/// A step of half a ramp with a sign: larger magnitudes are larger cells whatever their sign, so that cells shown as
/// one are shown as the largest.
constexpr Cell signed_cell(int step, bool negative) {
  return static_cast<Cell>(kHealthyFirst + 2 * step + (negative ? 0 : 1));
}
inline constexpr int kSignedSteps = kHealthySteps / 2;

/// Headroom below this is low: the next larger input may clip.
inline constexpr double kLowHeadroomBelow = 1.25;

/// `headroom`: largest finite value over largest |x|, 0 when it means nothing for these elements.
Cell cell_of(const Health& health, double headroom);
/// The same where -Inf hides something from somebody (Tensor::hides) and is not bad.
Cell cell_of(const Health& health, bool hides, double headroom);

/// Largest |x| at the lower end of a healthy cell's step.
double magnitude_of(Cell cell);

/// "NaN", "clipped", "healthy" ...
std::string_view cell_name(Cell cell);

}  // namespace nanscope::gui
