#include <fmt/format.h>

#include "core/diagnosis/detectors/misreadings.h"

namespace nanscope {

/// Attention took the codes of the cache for another flavour of fp8 than they were written in.
FaultReport detect_fp8_format_mismatch(Facts& facts) {
  FaultReport report;
  const Misreadings found =
      misreadings(facts, [](const KvReading& reading) { return reading.as != reading.stated && reading.power == 1; });
  if (found.wrong.empty()) {
    report.figure = fmt::format("{} reads of 8-bit codes looked at, none comes out better in another flavour of fp8",
                                found.looked_at);
    return report;
  }
  const KvReading& first = *found.wrong.front();
  FoundFault fault = misreading_fault(facts, found);
  fault.fault.evidence.insert(fault.fault.evidence.begin(), {{"written as", std::string(name(first.stated))},
                                                             {"read as", std::string(name(first.as))}});
  fault.fault.summary =
      fmt::format("{} was written as {} and comes out of its codes only as {}: {} of {} rows looked at, as {} {}",
                  tensor_text(fault.fault.where), name(first.stated), name(first.as), found.rows_explained,
                  found.rows_wrong, name(first.stated), found.rows_wrong_as_stated);
  fault.fault.fix = "write and read the cache in the same fp8 flavour, or convert it where the hardware changes";
  report.figure =
      fmt::format("{} of {} reads come out as {} alone", found.wrong.size(), found.looked_at, name(first.as));
  report.faults.push_back(std::move(fault));
  return report;
}

}  // namespace nanscope
