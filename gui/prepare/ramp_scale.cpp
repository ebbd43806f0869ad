#include "gui/prepare/ramp_scale.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {
namespace {

constexpr double kDecades = 4;  ///< of a logarithmic ramp, at most

}  // namespace

RampScale::RampScale(Ramp ramp, double smallest, double largest, int steps)
    : ends_(static_cast<std::size_t>(steps - 1)), high_(largest) {
  if (!(largest > 0)) return;
  low_ = ramp == Ramp::linear ? 0 : std::clamp(smallest, largest * std::pow(10.0, -kDecades), largest);
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const double part = static_cast<double>(i + 1) / steps;
    ends_[i] = ramp == Ramp::linear ? largest * part : low_ * std::pow(largest / low_, part);
  }
}

RampScale RampScale::between(Ramp ramp, double low, double high, int steps) {
  RampScale scale(steps);
  scale.low_ = low;
  scale.high_ = high;
  for (std::size_t i = 0; i < scale.ends_.size(); ++i) {
    const double part = static_cast<double>(i + 1) / steps;
    scale.ends_[i] = ramp == Ramp::linear ? low + (high - low) * part : low * std::pow(high / low, part);
  }
  return scale;
}

int RampScale::step(double magnitude) const {
  return static_cast<int>(std::upper_bound(ends_.begin(), ends_.end(), magnitude) - ends_.begin());
}

}  // namespace nanscope::gui
