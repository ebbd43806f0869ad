#include "instrument/live/time_budget.h"

#include <algorithm>

namespace nanscope::live {

namespace {
/// Weight of what was seen last: a slow one is believed at once, a fast one little by little.
constexpr double kFaster = 0.1;
}  // namespace

bool TimeBudget::allows(std::int64_t now_ns, std::uint64_t bytes) const {
  if (share_ >= 1) return true;
  const double cost = fixed_ns_ + ns_per_byte_ * static_cast<double>(bytes);
  return static_cast<double>(spent_) + cost <= share_ * static_cast<double>(now_ns - start_);
}

void TimeBudget::spend(std::int64_t ns, std::uint64_t bytes) {
  spent_ += ns;
  const double expected = fixed_ns_ + ns_per_byte_ * static_cast<double>(bytes);
  const double ratio = static_cast<double>(ns) / expected;
  const double factor = ratio >= 1 ? ratio : 1 + kFaster * (ratio - 1);
  fixed_ns_ = std::max(1.0, fixed_ns_ * factor);
  ns_per_byte_ = std::max(1e-6, ns_per_byte_ * factor);
}

double TimeBudget::share_spent(std::int64_t now_ns) const {
  const auto wall = static_cast<double>(now_ns - start_);
  return wall <= 0 ? 0 : static_cast<double>(spent_) / wall;
}

}  // namespace nanscope::live
