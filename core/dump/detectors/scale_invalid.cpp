#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/diagnosis/scales.h"
#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {
namespace {

constexpr std::string_view kScales[] = {"k_scale",     "v_scale",      "q_scale",     "kv_scale",    "prob_scale",
                                        "score_scale", "weight_scale", "input_scale", "output_scale"};

bool is_scale(const DumpTensor& tensor) {
  return std::find(std::begin(kScales), std::end(kScales), tensor.at.role) != std::end(kScales);
}

std::string_view complaint(float scale, bool power_of_two) {
  // e8m0 has no zero: 2^-127 is the scale of a block of zeros.
  return power_of_two && !std::isnan(scale) ? std::string_view() : scale_complaint(double{scale});
}

/// Scales of blocks lie in tables with padding: NaN in what a product does not read harms nobody. What its module puts
/// out is then healthy.
bool harmless(DumpFacts& facts, TensorIndex scales) {
  const DumpTensor& table = facts.tensor(scales);
  if (table.at.role != "input_scale" || table.count() < 2) return false;
  for (const TensorIndex i : facts.members(facts.pass_of(scales))) {
    const DumpTensor& tensor = facts.tensor(i);
    if (is_activation(tensor) && tensor.at.port == Port::output && tensor.at.module == table.at.module) {
      return !tensor.bad();
    }
  }
  return false;
}

}  // namespace

DumpReport detect_scale_invalid(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t scales = 0;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    if (!is_scale(tensor) || explained.has(i)) continue;
    const auto values = facts.values(i);
    if (!values) continue;
    const bool power_of_two = tensor.format == Format::e8m0;
    std::int64_t bad = 0;
    std::size_t first = 0;
    for (std::size_t at = 0; at < values->size(); ++at) {
      ++scales;
      if (complaint((*values)[at], power_of_two).empty()) continue;
      if (bad++ == 0) first = at;
    }
    // Scales of blocks that hold zeros alone are zero in many checkpoints.
    const bool all_zero = bad > 0 && tensor.count() > 1 && (*values)[first] == 0;
    if (bad == 0 || (all_zero && bad < tensor.count()) || harmless(facts, i)) continue;
    const float value = (*values)[first];
    DumpFinding finding = finding_at(facts, i, {i});
    finding.fault.evidence = {{"scale", double{value}}, {"invalid", bad}, {"scales", tensor.count()}};
    finding.fault.summary = fmt::format("{} is {}: {:.6g}{}", tensor.name, complaint(value, power_of_two), value,
                                        tensor.count() > 1 ? fmt::format(", {} of {} such", bad, tensor.count()) : "");
    finding.fault.fix = "check that the checkpoint or the calibration sets this scale before its first use";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure =
      fmt::format("{} of {} dumped scales are zero, negative, not finite or sentinels", report.findings.size(), scales);
  return report;
}

}  // namespace nanscope::dump_detectors
