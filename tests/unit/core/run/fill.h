#pragma once
#include <cstdint>
#include <functional>

namespace nanscope::testing {

/// Values of a tensor made by hand.
using Fill = std::function<float(std::int64_t row, std::int64_t channel)>;

inline Fill constant(float value) {
  return [value](std::int64_t, std::int64_t) { return value; };
}

}  // namespace nanscope::testing
