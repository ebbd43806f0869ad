#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/recording/weight_version.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope {
namespace {

double grown(const Health& now, const Health& then) {
  return then.absmax > 0 ? double{now.absmax} / double{then.absmax} : 1;
}

/// The weight that an op reads in a role; null when that is none of a recording.
const WeightRow* weight_of(RunView& run, const Op& op, std::string_view role) {
  const auto found =
      std::find_if(op.inputs.begin(), op.inputs.end(), [&](const Input& one) { return one.role == role; });
  return found == op.inputs.end() || found->weight.empty() ? nullptr : run.weight(found->weight);
}

/// A weight of the cast's layer whose version is newer than what the scale was made from; empty where none is.
std::string newer_weight(Survey& survey, const Cast& cast) {
  if (cast.ledger == nullptr) return {};
  RunView& run = survey.run();
  for (const Op& op : run.content(cast.step).ops) {
    const WeightRow* weight = op.layer == cast.layer ? weight_of(run, op, "weight") : nullptr;
    if (weight != nullptr && first_step_of_version(weight->name) > std::max<StepId>(0, cast.ledger->calibrated_step)) {
      return weight->name;
    }
  }
  return {};
}

/// How much a weight that an op of the cast's layer reads is larger than the version that an earlier step read.
double version_growth(Survey& survey, const Cast& cast) {
  RunView& run = survey.run();
  const std::span<const WeightRow> weights = run.weights();
  if (std::none_of(weights.begin(), weights.end(), [](const WeightRow& row) { return is_later_version(row.name); })) {
    return 1;
  }
  double growth = 1;
  for (const Op& op : run.content(cast.step).ops) {
    const WeightRow* now = op.layer == cast.layer ? weight_of(run, op, "weight") : nullptr;
    for (const Step& before : run.steps()) {
      if (now == nullptr || before.id >= cast.step) break;
      const Op* then = run.find_op(before.id, op.layer, op.name);
      const WeightRow* old = then != nullptr ? weight_of(run, *then, "weight") : nullptr;
      if (old != nullptr && old != now) growth = std::max(growth, grown(now->health, old->health));
    }
  }
  return growth;
}

/// How much a weight of the layer grew since an earlier pass, 1 when none was recorded or dumped twice.
double weight_growth(Survey& survey, const Cast& cast) {
  double growth = version_growth(survey, cast);
  RunView& run = survey.run();
  for (const Tensor& weight : run.content(cast.step).tensors) {
    const Op* maker = run.maker(weight);
    if (maker == nullptr || maker->kind != OpKind::parameter || weight.role != "weight" || maker->layer != cast.layer)
      continue;
    for (const Step& before : run.steps()) {
      if (before.id >= cast.step) break;
      const Op* then = run.find_op(before.id, maker->layer, maker->name);
      const Tensor* old = then != nullptr ? run.result(*then) : nullptr;
      if (old != nullptr) growth = std::max(growth, grown(weight.health, old->health));
    }
  }
  return growth;
}

}  // namespace

/// Delayed scaling: each scale comes from a history of largest values, and these values have left it behind.
Findings detect_delayed_scale_stale(Survey& survey) {
  Findings out;
  Finding finding;
  const Cast* first = nullptr;
  std::optional<History> history;
  double least = INFINITY;
  std::int64_t looked_at = 0;
  for (std::size_t i = 0; i < survey.casts.size(); ++i) {
    const Cast& cast = survey.casts[i];
    const auto from = history_of(survey, cast);
    if (!from) continue;
    ++looked_at;
    if (cast.headroom() > 0) least = std::min(least, cast.headroom());
    if (!cast.clips()) continue;
    if (first == nullptr) {
      first = &cast;
      history = from;
      finding = finding_at(survey, *survey.run().tensor(cast.codes), cast.clipped_rows);
      finding.fault.breaks = cast.bad > 0;
    }
    finding.fault.ops.push_back(cast.op);
    finding.explains.push_back({Symptom::Kind::cast, i});
    for (std::size_t b = 0; b < survey.births.size(); ++b) {
      if (survey.births[b].tensor == cast.codes) finding.explains.push_back({Symptom::Kind::birth, b});
    }
  }
  if (looked_at == 0) {
    out.not_in_dump("no scale that follows a history of largest values was dumped");
    return out;
  }
  out.excluded(fmt::format("the least headroom of {} is {:.3g}", counted(looked_at, "delayed scale"), least));
  if (first == nullptr) return out;
  const double growth = weight_growth(survey, *first);
  const std::string newer = newer_weight(survey, *first);
  finding.fault.evidence = {{"scale", first->telling_scale()},
                            {"history_absmax", history->largest},
                            {"history_from", history->from},
                            {"weights_grew", growth}};
  if (!newer.empty()) finding.fault.evidence.push_back({"newer_weight", newer});
  add_cast_evidence(finding, *first);
  finding.rank = Rank::recomputed;
  finding.fault.certainty = Certainty::proved;
  finding.fault.summary = fmt::format(
      "the scale {:.4g} of {} follows largest values of at most {:.4g} ({}), and they are {:.4g} now: headroom "
      "{:.3g}{}",
      first->telling_scale(), finding.fault.tensor, history->largest, history->from, first->absmax, first->headroom(),
      growth > 1.5    ? fmt::format("; a weight of the layer grew {:.3g} times since", growth)
      : newer.empty() ? std::string()
                      : fmt::format("; {} is newer than that", newer));
  finding.fault.fix =
      "compute the scale from the values that are cast, or bound it by the weights, after weights are loaded or jump";
  out.found.push_back(std::move(finding));
  return out;
}

}  // namespace nanscope
