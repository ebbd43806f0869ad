#include "core/tensor/health.h"

#include <algorithm>
#include <limits>

namespace nanscope {

double Health::mean() const { return finite() == 0 ? 0.0 : sum / static_cast<double>(finite()); }

double Health::variance() const {
  if (finite() == 0) return 0.0;
  const double m = mean();
  return std::max(0.0, sum_sq / static_cast<double>(finite()) - m * m);
}

Health empty_health() {
  Health health;
  health.min = std::numeric_limits<float>::infinity();
  health.max = -std::numeric_limits<float>::infinity();
  return health;
}

namespace {

/// In the header's words, where the compiler can keep the sums of a whole span in registers.
inline void add(Health& into, const Health& part) {
  into.count += part.count;
  into.nan += part.nan;
  into.pos_inf += part.pos_inf;
  into.neg_inf += part.neg_inf;
  into.saturated += part.saturated;
  into.subnormal += part.subnormal;
  into.zero += part.zero;
  into.flushed += part.flushed;
  into.clipped += part.clipped;
  if (part.first_bad >= 0 && (into.first_bad < 0 || part.first_bad < into.first_bad)) into.first_bad = part.first_bad;
  into.sum += part.sum;
  into.sum_sq += part.sum_sq;
  into.min = std::min(into.min, part.min);
  into.max = std::max(into.max, part.max);
  into.absmax = std::max(into.absmax, part.absmax);
}

}  // namespace

void merge(Health& into, const Health& part) { add(into, part); }

void merge(Health& into, std::span<const Health> parts) {
  Health sum = into;
  for (const Health& part : parts) add(sum, part);
  into = sum;
}

}  // namespace nanscope
