#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {

/// Logits without a number to choose from: the index that an argmax gives is an artefact of how it compares.
DumpReport detect_argmax_nan_fallback(DumpFacts& facts, const Explained&) {
  DumpReport report;
  for (const TensorIndex i : facts.all("logits")) {
    const DumpTensor& tensor = facts.tensor(i);
    if (tensor.at.port != Port::output) continue;
    if (tensor.health.nan < static_cast<std::uint64_t>(tensor.channels())) continue;
    std::vector<std::int64_t> rows;
    const std::vector<Health>& health = facts.rows(i);
    for (std::size_t row = 0; row < health.size(); ++row) {
      if (health[row].count > 0 && health[row].nan == health[row].count) rows.push_back(static_cast<std::int64_t>(row));
    }
    if (rows.empty()) continue;
    DumpFinding finding = finding_at(facts, i, {i}, rows);
    finding.fault.evidence = {{"rows", static_cast<std::int64_t>(rows.size())}, {"vocabulary", tensor.channels()}};
    std::string chosen;
    if (const auto token = facts.in_layer(i, "sampled")) {
      if (const auto values = facts.values(*token); values && !values->empty()) {
        finding.fault.evidence.push_back({"token", static_cast<std::int64_t>(values->back())});
        chosen = fmt::format("; the token that was answered is {}", static_cast<std::int64_t>(values->back()));
      }
    }
    finding.fault.summary = fmt::format("all {} logits of {} of {} rows of {} are NaN{}", tensor.channels(),
                                        rows.size(), tensor.rows(), tensor.name, chosen);
    finding.fault.fix = "refuse to answer from logits that hold NaN, and dump the layers before them";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure = fmt::format("{} of {} dumped tensors of logits hold rows of NaN alone", report.findings.size(),
                              facts.all("logits").size());
  return report;
}

}  // namespace nanscope::dump_detectors
