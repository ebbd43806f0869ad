#include <fmt/format.h>

#include <algorithm>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {

/// NaN or Inf that no theory before this one explains. Says what is at hand about where it came from.
DumpReport detect_invalid_op(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t others = 0;
  for (const Birth& birth : facts.births()) {
    const DumpTensor& tensor = facts.tensor(birth.tensor);
    const bool because_of_known =
        std::any_of(birth.inputs.begin(), birth.inputs.end(), [&](TensorIndex i) { return explained.has(i); });
    if (explained.has(birth.tensor) || because_of_known) {
      ++others;
      continue;
    }
    // Where the dump begins is not where the fault does: that proves nothing that another theory does not.
    if (birth.inputs.empty() && (tensor.at.role == "logits" || !explained.tensors.empty())) continue;
    DumpFinding finding = finding_at(facts, birth.tensor, {birth.tensor}, birth.rows);
    double largest = 0;
    for (const TensorIndex input : birth.inputs) largest = std::max(largest, double{facts.tensor(input).health.absmax});
    finding.fault.evidence = {{"nan", static_cast<std::int64_t>(tensor.health.nan)},
                              {"inf", static_cast<std::int64_t>(tensor.health.pos_inf + tensor.health.neg_inf)},
                              {"first_bad", tensor.health.first_bad},
                              {"inputs_dumped", static_cast<std::int64_t>(birth.inputs.size())}};
    if (birth.inputs.empty()) {
      finding.fault.summary = fmt::format("{} holds {} NaN or Inf, and nothing that it was made of was dumped",
                                          tensor.name, tensor.health.bad());
      finding.fault.fix = "dump the inputs of this module too: what is bad may have come in with them";
    } else {
      finding.fault.evidence.push_back({"largest_input", largest});
      finding.fault.summary = fmt::format("{} holds {} NaN or Inf, and what goes in ({}{}) is finite, at most {:.6g}",
                                          tensor.name, tensor.health.bad(), facts.tensor(birth.inputs.front()).name,
                                          birth.inputs.size() > 1 ? " and more" : "", largest);
      finding.fault.fix = "dump what this module computes in between: its scores, sums and scales";
    }
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure =
      fmt::format("{} places where NaN or Inf comes out of healthy inputs, {} of them explained by other classes",
                  facts.births().size(), others);
  return report;
}

}  // namespace nanscope::dump_detectors
