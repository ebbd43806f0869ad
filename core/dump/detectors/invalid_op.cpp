#include <fmt/format.h>

#include <algorithm>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {
namespace {

/// "3 NaN or Inf"; of a tensor whose statistics alone were dumped, what they say.
std::string what_is_bad(const DumpTensor& tensor) {
  const Health& health = tensor.health;
  if (!tensor.stated) return fmt::format("{} NaN or Inf", health.bad());
  const bool infinite = health.pos_inf + health.neg_inf > 0;
  if (health.nan > 0) return infinite ? "NaN and Inf" : "NaN";
  return health.neg_inf == 0 ? "+Inf" : health.pos_inf == 0 ? "-Inf" : "Inf of both signs";
}

std::vector<Evidence> evidence_of(const DumpTensor& tensor, std::size_t inputs) {
  const auto nan = static_cast<std::int64_t>(tensor.health.nan);
  const auto inf = static_cast<std::int64_t>(tensor.health.pos_inf + tensor.health.neg_inf);
  const auto dumped = static_cast<std::int64_t>(inputs);
  if (tensor.stated) return {{"nan_at_least", nan}, {"inf_at_least", inf}, {"inputs_dumped", dumped}};
  return {{"nan", nan}, {"inf", inf}, {"first_bad", tensor.health.first_bad}, {"inputs_dumped", dumped}};
}

}  // namespace

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
    finding.fault.evidence = evidence_of(tensor, birth.inputs.size());
    if (birth.inputs.empty()) {
      finding.fault.summary =
          fmt::format("{} holds {}, and nothing that it was made of was dumped", tensor.name, what_is_bad(tensor));
      finding.fault.fix = "dump the inputs of this module too: what is bad may have come in with them";
    } else {
      finding.fault.evidence.push_back({"largest_input", largest});
      finding.fault.summary = fmt::format("{} holds {}, and what goes in ({}{}) is finite, at most {:.6g}", tensor.name,
                                          what_is_bad(tensor), facts.tensor(birth.inputs.front()).name,
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
