#include "gui/cell.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {

Cell cell_of(const Health& health, double headroom) {
  if (health.count == 0) return kAbsent;
  if (health.nan > 0) return kNan;
  if (health.pos_inf + health.neg_inf > 0) return kInf;
  if (health.clipped > 0) return kClipped;
  const double largest = static_cast<double>(health.absmax);
  if (!(largest > 0)) return kZero;
  if (headroom > 0 && headroom < kLowHeadroomBelow) return kLowHeadroom;
  const double step = std::floor((std::log10(largest) - kRampFrom) * kStepsPerDecade);
  return static_cast<Cell>(kHealthyFirst + static_cast<int>(std::clamp(step, 0.0, kHealthySteps - 1.0)));
}

Cell cell_of(const Health& health, bool hides, double headroom) {
  if (health.neg_inf == 0 || !hides) return cell_of(health, headroom);
  Health shown = health;
  shown.neg_inf = 0;
  return cell_of(shown, headroom);
}

double magnitude_of(Cell cell) {
  return std::pow(10.0, kRampFrom + static_cast<double>(cell - kHealthyFirst) / kStepsPerDecade);
}

std::string_view cell_name(Cell cell) {
  switch (cell) {
    case kAbsent:
      return "nothing recorded";
    case kZero:
      return "all zero";
    case kLowHeadroom:
      return "low headroom";
    case kClipped:
      return "clipped";
    case kInf:
      return "Inf";
    case kNan:
      return "NaN";
    default:
      return "healthy";
  }
}

}  // namespace nanscope::gui
