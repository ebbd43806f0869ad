#include <algorithm>
#include <array>

#include "core/dump/detectors/detector.h"

namespace nanscope {

namespace dump_detectors {
#define NANSCOPE_DUMP_FAULT(function, id, text) \
  DumpReport detect_##function(DumpFacts& facts, const Explained& explained);
#include "core/dump/detectors/detectors.def"
#undef NANSCOPE_DUMP_FAULT
}  // namespace dump_detectors

namespace {
constexpr std::array kDetectors = {
#define NANSCOPE_DUMP_FAULT(function, id, text) DumpDetector{id, text, dump_detectors::detect_##function},
#include "core/dump/detectors/detectors.def"
#undef NANSCOPE_DUMP_FAULT
};
}  // namespace

std::span<const DumpDetector> all_dump_detectors() { return kDetectors; }

DumpFinding finding_at(DumpFacts& facts, TensorIndex carrier, std::vector<TensorIndex> symptoms,
                       const std::vector<std::int64_t>& rows) {
  DumpFinding finding;
  finding.carrier = carrier;
  std::sort(symptoms.begin(), symptoms.end());
  finding.symptoms = std::move(symptoms);
  const TensorIndex shown = finding.symptoms.empty() ? carrier : finding.symptoms.front();
  finding.fault.where = facts.where(shown, rows);
  return finding;
}

}  // namespace nanscope
