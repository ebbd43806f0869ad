#pragma once
#include <cstdint>
#include <vector>

namespace nanscope::gui {

/// How magnitudes are laid out on a ramp of colours.
enum class Ramp : std::uint8_t { log, linear };

/// Which step of a ramp a magnitude takes: the first whose end is above it.
class RampScale {
 public:
  /// Of the non-zero finite magnitudes, the smallest and the largest. A logarithmic ramp covers four decades
  /// at most; what is smaller takes its first step.
  RampScale(Ramp ramp, double smallest, double largest, int steps);
  /// From `low` to `high` however far they are from each other; what lies outside takes the ends. A linear ramp
  /// begins at `low`, too. Without effect unless 0 <= low < high, and 0 < low for a logarithmic one.
  static RampScale between(Ramp ramp, double low, double high, int steps);
  int step(double magnitude) const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  explicit RampScale(int steps) : ends_(static_cast<std::size_t>(steps - 1)) {}
  std::vector<double> ends_;  ///< of all steps but the last
  double low_ = 0;
  double high_ = 0;
};

}  // namespace nanscope::gui
