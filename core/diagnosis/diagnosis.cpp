#include "core/diagnosis/diagnosis.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/diagnosis/detectors/detector.h"
#include "core/diagnosis/provenance/walk.h"

namespace nanscope {
namespace {

bool contains(const std::vector<std::int64_t>& ops, std::int64_t op) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

/// The fault that the way back from `fault` meets first, other than itself.
std::optional<std::size_t> cause_of(Facts& facts, const std::vector<FoundFault>& faults, std::size_t index) {
  const FoundFault& fault = faults[index];
  if (!fault.element) return std::nullopt;
  for (const Hop& hop : walk(facts, *fault.element).hops) {
    if (hop.where.op_id == 0 || contains(fault.ops, hop.where.op_id)) continue;
    for (std::size_t i = 0; i < index; ++i) {
      if (contains(faults[i].ops, hop.where.op_id)) return i;
    }
  }
  // A fault about the very op that clipped or scaled badly: the scale is the cause.
  for (std::size_t i = 0; i < index; ++i) {
    if (!faults[i].fault.breaks && contains(faults[i].ops, fault.ops.front())) return i;
  }
  return std::nullopt;
}

/// NaN in a warm-up or a dummy batch, whose answer nobody gets, is harmless where it is born: the fault is what
/// carried it from there into a request.
bool unasked(const Fault& fault) { return fault.breaks && fault.where.request.value_or(0) < 0; }

/// What broke the run first, followed back to where nothing is behind it.
std::optional<std::size_t> root_of(const std::vector<Fault>& faults) {
  if (faults.empty()) return std::nullopt;
  std::size_t root = 0;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (!faults[i].breaks || unasked(faults[i])) continue;
    root = i;
    break;
  }
  // Indices only decrease.
  while (faults[root].because && !unasked(faults[*faults[root].because])) root = *faults[root].because;
  return root;
}

Spread spread_of(Facts& facts) {
  Spread spread;
  TensorFilter first;
  first.bad_only = true;
  first.limit = 1;
  const std::vector<TensorRow> bad = facts.run.tensors(first);
  if (!bad.empty()) spread.first_bad_tensor = tensor_text(facts.where(bad.front()));
  for (const StepRow& step : facts.run.steps()) spread.tokens += step.tokens;
  std::set<std::pair<std::int64_t, std::int64_t>> tokens;  // step, row
  const auto add = [&](const TensorRow& tensor, std::int64_t step) {
    for (const std::int64_t row : facts.bad_rows(tensor)) tokens.insert({step, row});
  };
  for (const SickOp& sick : facts.sick_ops()) {
    if (sick.op.kind == "kv_read") continue;  // its rows are keys
    for (const TensorRow& tensor : sick.outputs) {
      if (tensor.tokens == sick.step.tokens) add(tensor, sick.step.id);
    }
  }
  // Steps after a request's first NaN answer were not looked at op by op; their logits tell.
  TensorFilter logits;
  logits.bad_only = true;
  logits.role = "logits";
  for (const TensorRow& tensor : facts.run.tensors(logits)) {
    if (const std::optional<OpRow> op = facts.run.op(tensor.op)) add(tensor, op->step);
  }
  spread.bad_tokens = static_cast<std::int64_t>(tokens.size());
  return spread;
}

std::vector<FoundFault> detect_all(Facts& facts, std::vector<Hypothesis>& hypotheses) {
  std::vector<FoundFault> found;
  for (const FaultDetector& detector : fault_detectors()) {
    FaultReport report = detector.detect(facts);
    hypotheses.push_back({std::string(detector.fault_class), !report.faults.empty(), std::move(report.figure)});
    for (FoundFault& fault : report.faults) {
      fault.fault.fault_class = detector.fault_class;
      fault.fault.tensor = tensor_text(fault.fault.where);
      found.push_back(std::move(fault));
    }
  }
  // A fault that breaks nothing by itself comes before one that breaks at the same op: it is the cause.
  std::stable_sort(found.begin(), found.end(), [](const FoundFault& a, const FoundFault& b) {
    if (a.ops.front() != b.ops.front()) return a.ops.front() < b.ops.front();
    return !a.fault.breaks && b.fault.breaks;
  });
  return found;
}

}  // namespace

Result<Diagnosis> diagnose(RunData& run, TensorSource& tensors, std::string target) {
  Facts facts(run, tensors);
  Diagnosis diagnosis;
  diagnosis.target = std::move(target);
  std::vector<FoundFault> found = detect_all(facts, diagnosis.hypotheses);
  for (std::size_t i = 0; i < found.size(); ++i) found[i].fault.because = cause_of(facts, found, i);
  for (FoundFault& fault : found) diagnosis.faults.push_back(std::move(fault.fault));
  diagnosis.root_cause = root_of(diagnosis.faults);
  diagnosis.spread = spread_of(facts);
  const RecordingCounts counts = run.counts();
  diagnosis.completeness = {counts.ops, counts.expected_ops};
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return diagnosis;
}

}  // namespace nanscope
