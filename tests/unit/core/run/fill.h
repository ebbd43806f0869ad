#pragma once
#include <cstdint>
#include <functional>
#include <limits>

namespace nanscope::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// Values of a tensor made by hand.
using Fill = std::function<float(std::int64_t row, std::int64_t channel)>;

inline Fill constant(float value) {
  return [value](std::int64_t, std::int64_t) { return value; };
}

}  // namespace nanscope::testing
