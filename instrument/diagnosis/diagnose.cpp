#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "instrument/diagnosis/causes.h"
#include "instrument/diagnosis/chain.h"
#include "instrument/diagnosis/coverage.h"
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/region.h"
#include "instrument/diagnosis/warnings/warning.h"

namespace nanscope {
namespace {

/// Of all findings those that explain something best: a symptom that several explain belongs to the highest rank.
std::vector<Finding> resolve(std::vector<Finding> all) {
  std::map<Symptom, Rank> highest;
  for (const Finding& one : all) {
    for (const Symptom& symptom : one.explains) {
      Rank& best = highest[symptom];
      best = std::max(best, one.rank);
    }
  }
  std::erase_if(all, [&](const Finding& one) {
    return !one.stays && !one.explains.empty() &&
           std::none_of(one.explains.begin(), one.explains.end(),
                        [&](const Symptom& symptom) { return highest.at(symptom) == one.rank; });
  });
  return all;
}

/// What findings of a class have in common when one thing made them; empty: nothing that tells.
std::string made_by(const Finding& finding) {
  const EvidenceValue* by = find(finding.fault.evidence, "explained_by");
  // The same wrong number under all scales of a kind was put there by whoever loads or computes them.
  if (by == nullptr && finding.fault.fault_class == "scale-invalid") by = find(finding.fault.evidence, "scale");
  return by != nullptr ? to_string(*by) : std::string();
}

/// Ranks run the same code: an op that is wrong on each of them is one fault.
bool on_another_rank(const Where& a, const Where& b) {
  return a.rank != b.rank && a.layer == b.layer && a.op == b.op && a.role == b.role && a.step == b.step;
}

bool one_fault(const Finding& a, const Finding& b) {
  if (a.fault.fault_class == "wrong-result" && b.fault.fault_class == "wrong-result" &&
      on_another_rank(a.fault.where, b.fault.where))
    return true;
  // Which flavour codes are written in is chosen for all that an op writes.
  const bool beside = a.fault.where.role == b.fault.where.role || a.fault.fault_class == "fp8-format-mismatch";
  return a.fault.fault_class == b.fault.fault_class && a.fault.where.op == b.fault.where.op && beside &&
         made_by(a) == made_by(b) && !made_by(a).empty();
}

/// One fault that shows in several layers, or on several ranks, is told once.
void merge_places(std::vector<Finding>& findings) {
  std::vector<Finding> merged;
  std::map<std::size_t, std::set<std::int64_t>> layers;
  std::map<std::size_t, std::set<std::int64_t>> ranks;
  for (Finding& one : findings) {
    const auto same =
        std::find_if(merged.begin(), merged.end(), [&](const Finding& other) { return one_fault(other, one); });
    if (same == merged.end()) {
      merged.push_back(std::move(one));
      continue;
    }
    const auto index = static_cast<std::size_t>(same - merged.begin());
    layers[index].insert(one.fault.where.layer.value_or(-1));
    ranks[index].insert(one.fault.where.rank);
    same->explains.insert(same->explains.end(), one.explains.begin(), one.explains.end());
    same->fault.ops.insert(same->fault.ops.end(), one.fault.ops.begin(), one.fault.ops.end());
  }
  for (auto& [index, others] : layers) {
    others.erase(merged[index].fault.where.layer.value_or(-1));
    if (!others.empty())
      merged[index].fault.evidence.push_back({"more_places", static_cast<std::int64_t>(others.size())});
  }
  for (auto& [index, others] : ranks) {
    others.erase(merged[index].fault.where.rank);
    if (!others.empty())
      merged[index].fault.evidence.push_back({"more_ranks", static_cast<std::int64_t>(others.size())});
  }
  findings = std::move(merged);
}

Spread spread_of(Survey& survey, const std::vector<Finding>& findings) {
  Spread spread;
  RunView& run = survey.run();
  std::set<std::pair<std::int64_t, std::int64_t>> bad;    // request, position
  std::set<std::pair<std::int64_t, std::int64_t>> apart;  // request and step with a bad token that is known
  std::set<std::pair<std::int64_t, std::int64_t>> whole;  // with one that is not: which rows are bad is not known
  for (const Step& step : run.steps()) spread.tokens += step.tokens();
  for (const StepId id : run.bad_steps()) {
    for (const Tensor& tensor : run.content(id).tensors) {
      if (!tensor.known || !RunView::symptomatic(tensor)) continue;
      if (tensor.axis == Axis::none || tensor.axis == Axis::slots || tensor.axis == Axis::keys) continue;
      const std::vector<std::int64_t> rows = run.bad_rows(tensor);
      if (rows.empty()) whole.emplace(run.step(id)->request(), run.step(id)->index());
      for (const std::int64_t row : rows) {
        const RowToken token = run.token_of(tensor, row);
        if (token.span == nullptr) continue;
        bad.emplace(token.span->request, token.position);
        apart.emplace(token.span->request, token.span->index);
      }
    }
  }
  const auto unplaced =
      std::count_if(whole.begin(), whole.end(), [&](const auto& one) { return !apart.contains(one); });
  spread.bad_tokens = static_cast<std::int64_t>(bad.size()) + unplaced;
  spread.at_least = !whole.empty();
  // The first that shows what is wrong: a NaN in a row of somebody, or what the first fault is about.
  const Birth* first = nullptr;
  for (const Birth& birth : survey.births) {
    if (first == nullptr || birth.op < first->op) first = &birth;
  }
  const Finding* earliest = findings.empty() ? nullptr : &findings.front();
  if (earliest != nullptr && earliest->shows_in != 0) {
    spread.first_bad_tensor = survey.facts.name_of(*survey.run().tensor(earliest->shows_in));
  } else if (earliest != nullptr && (first == nullptr || earliest->fault.ops.front() <= first->op)) {
    spread.first_bad_tensor = earliest->fault.tensor;
  } else if (first != nullptr) {
    spread.first_bad_tensor = survey.facts.name_of(survey.tensor(*first));
  }
  return spread;
}

Recomputation recomputation_of(Survey& survey) {
  Recomputation made;
  const std::set<TensorId> unknown(survey.not_understood.begin(), survey.not_understood.end());
  for (const Recomputed& result : survey.tables) {
    ++made.ops;
    made.elements += result.elements;
    made.explained += result.explained;
  }
  for (const Recomputed& result : survey.recomputer.results()) {
    if (unknown.contains(result.tensor)) {
      const std::string name = survey.facts.name_of(*survey.run().tensor(result.tensor));
      made.not_recomputed.push_back({name, "no known way of doing it gives what was dumped, in any layer"});
      continue;
    }
    ++made.ops;
    made.elements += result.elements;
    made.explained += result.explained;
  }
  for (const NotRecomputed& one : survey.recomputer.not_recomputed()) {
    const Tensor* tensor = survey.run().tensor(one.tensor);
    if (tensor != nullptr) made.not_recomputed.push_back({survey.facts.name_of(*tensor), one.reason});
  }
  made.ops_with_inputs = made.ops + static_cast<std::int64_t>(unknown.size());
  return made;
}

Completeness completeness_of(Facts& facts) {
  Completeness whole;
  RunView& run = facts.run;
  const RecordingCounts counts = run.counts();
  const bool dumped = run.info().device == kDumpDevice;
  whole.read = dumped ? counts.tensors : counts.ops;
  whole.expected = dumped ? counts.expected_tensors : counts.expected_ops;
  whole.interrupted = run.interrupted();
  if (!whole.interrupted) return whole;
  for (auto step = run.steps().rbegin(); step != run.steps().rend() && whole.reached.empty(); ++step) {
    const StepContent& content = run.content(step->id);
    if (!content.ops.empty()) whole.reached = tensor_text(facts.where(content.ops.back()));
  }
  return whole;
}

/// Whether nothing says where a NaN comes from: what it was made of was not dumped, or it was looked up and not
/// computed.
bool of_unknown_origin(Survey& survey, const Fault& fault) {
  if (fault.fault_class != "invalid-op" || fault.ops.empty()) return false;
  const Op* op = survey.run().op(fault.ops.front());
  const EvidenceValue* known = find(fault.evidence, "inputs_known");
  return (op != nullptr && op->kind == OpKind::embedding) ||
         (known != nullptr && *known == EvidenceValue{std::int64_t{0}});
}

bool leads_to(const Diagnosis& diagnosis, std::size_t from, std::size_t to) {
  for (std::size_t hops = 0; hops < diagnosis.faults.size(); ++hops) {
    if (to == from) return true;
    const auto because = diagnosis.faults[to].because;
    if (!because) return false;
    to = *because;
  }
  return false;
}

/// A NaN of nobody knows what becomes the harm of others where its blocks are shared: that is at fault.
void blame_sharing(Survey& survey, Diagnosis& diagnosis) {
  if (!diagnosis.root_cause || !of_unknown_origin(survey, diagnosis.faults[*diagnosis.root_cause])) return;
  const auto request = diagnosis.faults[*diagnosis.root_cause].where.request;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    const Fault& fault = diagnosis.faults[i];
    if (fault.fault_class != "prefix-cache-poison" || fault.where.request == request) continue;
    if (!leads_to(diagnosis, *diagnosis.root_cause, i)) continue;
    diagnosis.root_cause = i;
    return;
  }
}

/// Layers that were recomputed in a way of their own are said: a design has them, or a fault that is in each step.
void note_layers_apart(const Recomputer& recomputer, std::vector<RunNote>& notes) {
  const std::set<std::int64_t>& apart = recomputer.layers_apart();
  if (apart.empty()) return;
  const std::vector<std::int64_t> layers(apart.begin(), apart.end());
  notes.push_back({"", fmt::format("attention of layer {} comes out in another way than that of the other layers, in "
                                   "every step: compare it with the model's config.json",
                                   ranges_text(layers))});
}

void sort_by_execution(RunView& run, const StepsOfRanks& ranks, std::vector<Finding>& findings) {
  std::vector<std::pair<Moment, std::size_t>> order;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    order.emplace_back(ranks.moment_of(run, findings[i].fault.ops.front()), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<Finding> sorted;
  sorted.reserve(findings.size());
  for (const auto& [moment, index] : order) sorted.push_back(std::move(findings[index]));
  findings = std::move(sorted);
}

/// Faults in order of execution, with their causes, and the root that comes first.
void fill_faults(Survey& survey, std::vector<Finding>& findings, Diagnosis& diagnosis) {
  for (Finding& one : findings) {
    std::sort(one.fault.ops.begin(), one.fault.ops.end());
    one.fault.ops.erase(std::unique(one.fault.ops.begin(), one.fault.ops.end()), one.fault.ops.end());
  }
  const StepsOfRanks ranks(survey.run());
  sort_by_execution(survey.run(), ranks, findings);
  const auto causes = causes_of(survey, ranks, findings);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    diagnosis.faults.push_back(findings[i].fault);
    diagnosis.faults.back().because = causes[i];
    Fault& fault = diagnosis.faults.back();
    if (fault.certainty == Certainty::possible) fault.fix.clear();
    const Op* begins = survey.run().op(fault.ops.front());
    if (!fault.fix.empty() && begins != nullptr) fault.settings = server_settings(fault.fault_class, begins->kind);
    if (!causes[i] && !diagnosis.root_cause) diagnosis.root_cause = i;
  }
  // A warm-up or a dummy batch may compute what it likes: at fault is what lets it reach a request.
  const auto request = [&](std::size_t i) { return diagnosis.faults[i].where.request.value_or(0); };
  if (!diagnosis.root_cause || request(*diagnosis.root_cause) >= 0) {
    blame_sharing(survey, diagnosis);
    return;
  }
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    if (diagnosis.faults[i].because != diagnosis.root_cause || request(i) < 0) continue;
    if (diagnosis.faults[i].fault_class != "masked-tail-poison" &&
        diagnosis.faults[i].fault_class != "prefix-cache-poison")
      continue;
    diagnosis.root_cause = i;
    return;
  }
}

}  // namespace

Result<Diagnosis> diagnose(RunView& run, Arithmetic& arithmetic, const DiagnoseOptions& options) {
  Diagnosis diagnosis;
  diagnosis.target = options.target;
  Facts facts(run);
  Recomputer recomputer(
      facts, arithmetic,
      {.stop = options.stop, .progress = options.progress, .model = options.model, .judgements = options.judgements});
  Survey survey = survey_of(facts, recomputer, options.recompute);
  std::vector<Finding> findings;
  for (const Detector& detector : detectors()) {
    Findings found = detector.detect(survey);
    found.check.fault_class = detector.fault_class;
    diagnosis.checks.push_back(std::move(found.check));
    for (Finding& one : found.found) {
      one.fault.fault_class = detector.fault_class;
      findings.push_back(std::move(one));
    }
  }
  if (options.stop.stop_requested()) return fail("stopped");
  std::set<std::string> suspected;
  for (const Finding& one : findings) suspected.insert(one.fault.fault_class);
  findings = resolve(std::move(findings));
  merge_places(findings);
  fill_faults(survey, findings, diagnosis);
  for (Check& check : diagnosis.checks) {
    const auto of_class = [&](const Fault& fault) { return fault.fault_class == check.fault_class; };
    const auto first = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(), of_class);
    if (first != diagnosis.faults.end()) {
      check.state = Checked::found;
      check.text = first->summary;
    } else if (suspected.contains(check.fault_class)) {
      check.text = "all that looks like it is explained better by another class";
    }
  }
  diagnosis.spread = spread_of(survey, findings);
  diagnosis.recomputation = recomputation_of(survey);
  diagnosis.completeness = completeness_of(facts);
  diagnosis.coverage = coverage_of(survey);
  diagnosis.chain = chain_of(facts, diagnosis.faults);
  diagnosis.warnings = warnings_of(survey, diagnosis.faults);
  diagnosis.notes = run.notes();
  note_layers_apart(recomputer, diagnosis.notes);
  run.check_stored(options.stop);
  if (options.stop.stop_requested()) return fail("stopped");
  diagnosis.unread = unread_parts(facts, diagnosis.notes);
  if (!diagnosis.unread.empty()) withdraw_exclusions(diagnosis.checks, diagnosis.unread.size());
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return diagnosis;
}

Verdict Diagnosis::verdict() const {
  if (!unread.empty()) return Verdict::damaged;
  if (!faults.empty()) return Verdict::fault;
  if (coverage.judged == 0 && (spread.tokens == 0 || coverage.outputs <= coverage.unknown_names)) {
    return Verdict::nothing_to_judge;
  }
  const bool whole = coverage.outputs > 0 && coverage.judged == coverage.outputs && coverage.in_part == 0 &&
                     coverage.unknown_names == 0 && coverage.absent == 0 && coverage.not_looked_at == 0;
  return whole && !completeness.interrupted ? Verdict::clean : Verdict::no_fault_found;
}

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::fault:
      return "fault";
    case Verdict::damaged:
      return "damaged";
    case Verdict::clean:
      return "clean";
    case Verdict::no_fault_found:
      return "no-fault-found";
    case Verdict::nothing_to_judge:
      return "nothing-to-judge";
  }
  return {};
}

std::string_view name(Certainty certainty) {
  switch (certainty) {
    case Certainty::possible:
      return "possible";
    case Certainty::shown:
      return "shown";
    case Certainty::proved:
      return "proved";
  }
  return {};
}

std::string_view name(Checked state) {
  switch (state) {
    case Checked::found:
      return "found";
    case Checked::excluded:
      return "excluded";
    case Checked::not_in_dump:
      return "not-in-dump";
    case Checked::not_looked_at:
      return "not-looked-at";
  }
  return {};
}

}  // namespace nanscope
