#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope {
namespace {

/// How much a weight of the layer grew since an earlier pass, 1 when none was dumped twice.
double weight_growth(Survey& survey, const Cast& cast) {
  double growth = 1;
  RunView& run = survey.run();
  for (const Tensor& weight : run.content(cast.step).tensors) {
    const Op* maker = run.maker(weight);
    if (maker == nullptr || maker->kind != OpKind::parameter || weight.role != "weight" || maker->layer != cast.layer)
      continue;
    for (const Step& before : run.steps()) {
      if (before.id >= cast.step) break;
      const Op* then = run.find_op(before.id, maker->layer, maker->name);
      const Tensor* old = then != nullptr ? run.result(*then) : nullptr;
      if (old != nullptr && old->health.absmax > 0)
        growth = std::max(growth, double{weight.health.absmax} / double{old->health.absmax});
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
  finding.fault.evidence = {{"scale", first->telling_scale()},
                            {"history_absmax", history->largest},
                            {"history_from", history->from},
                            {"weights_grew", growth}};
  add_cast_evidence(finding, *first);
  finding.certainty = kProved;
  finding.fault.summary = fmt::format(
      "the scale {:.4g} of {} follows largest values of at most {:.4g} ({}), and they are {:.4g} now: headroom "
      "{:.3g}{}",
      first->telling_scale(), finding.fault.tensor, history->largest, history->from, first->absmax, first->headroom(),
      growth > 1.5 ? fmt::format("; a weight of the layer grew {:.3g} times since", growth) : "");
  finding.fault.fix =
      "compute the scale from the values that are cast, or bound it by the weights, after weights are loaded or jump";
  out.found.push_back(std::move(finding));
  return out;
}

}  // namespace nanscope
