#include "core/tensor/health_of.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace nanscope {

Health health_of(std::span<const float> values, std::int64_t first, float largest_finite) {
  Health health = empty_health();
  health.count = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    if (!std::isfinite(value)) {
      (std::isnan(value) ? health.nan : value > 0 ? health.pos_inf : health.neg_inf) += 1;
      if (health.first_bad < 0) health.first_bad = first + static_cast<std::int64_t>(i);
      continue;
    }
    health.zero += value == 0 ? 1 : 0;
    health.saturated += std::abs(value) >= largest_finite ? 1 : 0;
    health.sum += double{value};
    health.sum_sq += double{value} * double{value};
    health.min = std::min(health.min, value);
    health.max = std::max(health.max, value);
    health.absmax = std::max(health.absmax, std::abs(value));
  }
  return health;
}

}  // namespace nanscope
