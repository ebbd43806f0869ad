#include <fmt/format.h>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// A weight that holds NaN or Inf and was used. One that nothing reads is no fault.
FaultReport detect_weight_corruption(Facts& facts) {
  std::int64_t bad = 0;
  for (const WeightRow& weight : facts.run.weights()) bad += weight.health.bad() > 0 ? 1 : 0;
  const std::string none =
      fmt::format("{} of {} weights hold NaN or Inf, none of those reached an output", bad, facts.run.weights().size());
  FaultReport report = report_births(facts, BirthClass::weight_corruption, "a bad weight was used",
                                     "load the weight again and compare its hash with the checkpoint's", none);
  for (FoundFault& found : report.faults) {
    const SickOp* birth = facts.sick(found.ops.front());
    if (birth != nullptr) found.fault.evidence.push_back({"weight", birth->bad_weight});
  }
  return report;
}

}  // namespace nanscope
