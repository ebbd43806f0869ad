#include <fmt/format.h>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// E[x^2] - E[x]^2 (+ eps) at or below zero: the square root has no value, the norm's row becomes NaN.
FaultReport detect_variance_collapse(Facts& facts) {
  const NormScan scan = scan_norms(facts);
  std::string none = "no norm was recorded";
  if (!scan.available) none = "the norms' statistics are not available";
  if (!scan.lowest.empty()) {
    none = fmt::format("the smallest of {} variances looked at is {:.6g}, plus eps {:.6g}", scan.rows,
                       scan.lowest.front().variance, scan.lowest.front().radicand());
  }
  return report_births(facts, BirthClass::variance_collapse, "variance at or below zero",
                       "compute the variance in two passes or with Welford's form, or clamp it at 0 before eps", none);
}

}  // namespace nanscope
