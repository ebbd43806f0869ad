#include <fmt/format.h>

#include "core/diagnosis/detectors/misreadings.h"
#include "core/diagnosis/scales.h"

namespace nanscope {

/// Attention got its K or V out of the codes with another power of the scale than the first.
FaultReport detect_scale_misapplied(Facts& facts) {
  FaultReport report;
  const Misreadings found = misreadings(facts, [](const KvReading& reading) { return reading.as == reading.stated; });
  if (found.wrong.empty()) {
    report.figure = found.looked_at == 0
                        ? std::string("no 8-bit codes with a valid scale were read")
                        : fmt::format("the scale applied once gives {} of {} rows that {} reads gave attention",
                                      found.rows_as_stated, found.rows, found.looked_at);
    return report;
  }
  const KvReading& first = *found.wrong.front();
  FoundFault fault = misreading_fault(facts, found);
  fault.fault.evidence.insert(fault.fault.evidence.begin(), {{"scale", first.scale},
                                                             {"it was", std::string(power_text(first.power))},
                                                             {"power", static_cast<std::int64_t>(first.power)}});
  fault.fault.summary =
      fmt::format("{} is the codes with the scale {:.6g} {}: that gives {} of {} rows looked at, the scale once {}",
                  tensor_text(fault.fault.where), first.scale, power_text(first.power), found.rows_explained,
                  found.rows_wrong, found.rows_wrong_as_stated);
  fault.fault.fix =
      "apply the scale exactly once between the code and its use: look for the kernel that drops it or "
      "folds it in";
  report.figure = fmt::format("{} of {} reads come out with the scale {}", found.wrong.size(), found.looked_at,
                              power_text(first.power));
  report.faults.push_back(std::move(fault));
  return report;
}

}  // namespace nanscope
