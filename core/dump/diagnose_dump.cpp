#include "core/dump/diagnose_dump.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/dump/detectors/detector.h"
#include "core/dump/warnings/warning.h"

namespace nanscope {
namespace {

/// When a finding happened: at the earlier of its first symptom and of what carries it, when that was computed.
TensorIndex moment(const DumpFacts& facts, const DumpFinding& finding) {
  const TensorIndex shown = finding.symptoms.empty() ? finding.carrier : finding.symptoms.front();
  return is_parameter(facts.tensor(finding.carrier)) ? shown : std::min(shown, finding.carrier);
}

/// The link before: the last one before it that broke something, in its own pass or one before it.
std::optional<std::size_t> cause_of(const std::vector<DumpFinding>& findings, std::size_t index) {
  for (std::size_t i = index; i-- > 0;) {
    if (findings[i].fault.breaks) return i;
  }
  return index > 0 ? std::optional(index - 1) : std::nullopt;
}

Result<std::vector<DumpFinding>> detect_all(DumpFacts& facts, std::vector<Hypothesis>& hypotheses,
                                            const DiagnoseOptions& options) {
  std::vector<DumpFinding> found;
  Explained explained;
  for (const DumpDetector& detector : all_dump_detectors()) {
    if (options.progress) options.progress(hypotheses.size(), all_dump_detectors().size());
    DumpReport report = detector.detect(facts, explained);
    if (options.stop.stop_requested()) return fail("stopped");
    hypotheses.push_back({std::string(detector.fault_class), !report.findings.empty(), std::move(report.figure)});
    for (DumpFinding& finding : report.findings) {
      finding.fault.fault_class = detector.fault_class;
      finding.fault.tensor = facts.tensor(finding.carrier).name;
      explained.tensors.insert(finding.carrier);
      explained.tensors.insert(finding.symptoms.begin(), finding.symptoms.end());
      found.push_back(std::move(finding));
    }
  }
  std::stable_sort(found.begin(), found.end(), [&](const DumpFinding& a, const DumpFinding& b) {
    // A scale was there before what was cast with it.
    return std::pair(moment(facts, a), a.carrier) < std::pair(moment(facts, b), b.carrier);
  });
  return found;
}

Spread spread_of(DumpFacts& facts, const std::vector<DumpFinding>& findings) {
  Spread spread;
  TensorIndex first = std::numeric_limits<TensorIndex>::max();
  for (const DumpFinding& finding : findings) {
    for (const TensorIndex i : finding.symptoms) first = std::min(first, i);
  }
  for (std::size_t pass = 0; pass < facts.passes(); ++pass) {
    std::int64_t tokens = 0;
    std::set<std::int64_t> bad;
    bool somewhere = false;
    for (const TensorIndex i : facts.members(pass)) {
      const DumpTensor& tensor = facts.tensor(i);
      if (!is_activation(tensor) || tensor.shape.size() < 2 || tensor.at.role == "sampled") continue;
      tokens = std::max(tokens, tensor.tokens());
      if (findings.empty() || !facts.symptomatic(i)) continue;
      // -inf in scores hides keys, also where it hides all of them: the NaN that a softmax makes of it is the symptom.
      if (tensor.at.role != "scores" || tensor.health.nan + tensor.health.pos_inf > 0) first = std::min(first, i);
      somewhere = somewhere || tensor.stated;
      if (tensor.stated) continue;
      for (const std::int64_t row : facts.bad_rows(i)) bad.insert(tensor.token_of(row));
    }
    spread.tokens += tokens;
    spread.bad_tokens += std::max<std::int64_t>(static_cast<std::int64_t>(bad.size()), somewhere ? 1 : 0);
    spread.at_least = spread.at_least || (somewhere && static_cast<std::int64_t>(bad.size()) < tokens);
  }
  if (first < facts.size()) spread.first_bad_tensor = facts.tensor(first).name;
  return spread;
}

}  // namespace

Result<Diagnosis> diagnose_dump(const Dump& dump, DumpElements& elements, const DiagnoseOptions& options) {
  DumpFacts facts(dump, elements, options.stop);
  Diagnosis diagnosis;
  diagnosis.target = dump.target;
  Result<std::vector<DumpFinding>> detected = detect_all(facts, diagnosis.hypotheses, options);
  if (!detected) return tl::unexpected(detected.error());
  std::vector<DumpFinding> findings = std::move(*detected);
  diagnosis.spread = spread_of(facts, findings);
  Explained explained;
  TensorIndex first_fault = facts.size();
  for (const DumpFinding& finding : findings) {
    explained.tensors.insert(finding.carrier);
    explained.tensors.insert(finding.symptoms.begin(), finding.symptoms.end());
    first_fault = std::min(first_fault, moment(facts, finding));
  }
  for (std::size_t i = 0; i < findings.size(); ++i) {
    findings[i].fault.because = cause_of(findings, i);
    diagnosis.faults.push_back(std::move(findings[i].fault));
    findings[i].fault.breaks = diagnosis.faults.back().breaks;
  }
  if (!diagnosis.faults.empty()) {
    const auto breaking =
        std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(), [](const Fault& f) { return f.breaks; });
    std::size_t root =
        breaking == diagnosis.faults.end() ? 0 : static_cast<std::size_t>(breaking - diagnosis.faults.begin());
    while (diagnosis.faults[root].because) root = *diagnosis.faults[root].because;
    diagnosis.root_cause = root;
  }
  // What was to be seen before it broke; behind it all is suspect.
  diagnosis.warnings = warnings_of(facts, [&](TensorIndex i) { return i < first_fault && !explained.has(i); });
  if (options.stop.stop_requested()) return fail("stopped");
  diagnosis.completeness.read = static_cast<std::int64_t>(dump.tensors.size());
  diagnosis.completeness.expected = static_cast<std::int64_t>(dump.expected.value_or(0));
  return diagnosis;
}

}  // namespace nanscope
