#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope {
namespace {

/// The scale was computed from values such as these: it holds them, with room to spare but not for anything. 16 is
/// beyond every calibration constant in use.
bool calibrated_on(const Cast& cast) { return cast.headroom() >= 0.95 && cast.headroom() <= 16; }

/// An earlier cast under the same scale that it fits.
const Cast* calibration(Survey& survey, const Cast& now) {
  if (!now.grid || !now.grid->single()) return nullptr;
  for (const Cast& then : survey.casts) {
    if (&then == &now) return nullptr;
    const bool same_place = then.target == now.target && then.layer == now.layer && then.format == now.format &&
                            same_lane(survey, then, now);
    // An implied scale is a median of rounded ratios.
    const double tolerance = now.implied || then.implied ? 0.02 : 1e-6;
    if (!same_place || !then.grid || !then.grid->single() || then.step == now.step) continue;
    if (std::abs(then.grid->first() - now.grid->first()) > tolerance * std::abs(now.grid->first())) continue;
    if (calibrated_on(then) && then.absmax <= now.absmax) return &then;
  }
  return nullptr;
}

bool locked(const Cast& cast) {
  return cast.ledger != nullptr && cast.ledger->calibrated_step >= 0 && cast.ledger->calibrated_step != cast.step &&
         cast.ledger->calibrated_absmax > 0;
}

}  // namespace

/// A cache's scale that was right for an earlier pass, is the same in a later one, and clips there.
Findings detect_kv_scale_locked(Survey& survey) {
  Findings out;
  Finding finding;
  const Cast* first = nullptr;
  double least = INFINITY;
  std::int64_t looked_at = 0;
  std::int64_t clipped = 0;
  for (std::size_t i = 0; i < survey.casts.size(); ++i) {
    const Cast& cast = survey.casts[i];
    if (cast.target == "x" || cast.headroom() == 0) continue;
    ++looked_at;
    least = std::min(least, cast.headroom());
    if (!cast.clips() || is_delayed(survey, cast)) continue;
    const Cast* then = calibration(survey, cast);
    if (then == nullptr && !locked(cast)) continue;
    if (first == nullptr) {
      first = &cast;
      finding = finding_at(survey, *survey.run().tensor(cast.codes), cast.clipped_rows);
      finding.fault.evidence = {{"scale", cast.grid->first()},
                                {"calibrated_absmax", locked(cast) ? cast.ledger->calibrated_absmax : then->absmax},
                                {"calibrated_in", locked(cast) ? request_name(survey, cast.ledger->calibrated_step)
                                                               : request_name(survey, then->step)}};
    }
    clipped += cast.clipped;
    finding.fault.ops.push_back(cast.op);
    finding.explains.push_back({Symptom::Kind::cast, i});
  }
  if (looked_at == 0) {
    out.not_in_dump("no cast into a KV cache was dumped with its values and its scale");
    return out;
  }
  out.excluded(fmt::format("the least headroom of {} is {:.3g}", counted(looked_at, "KV store"), least));
  if (first == nullptr) return out;
  add_cast_evidence(finding, *first);
  // The ledger of a recording says when a scale was set.
  finding.rank = locked(*first) ? Rank::set_before : Rank::counted;
  finding.fault.certainty = locked(*first) ? Certainty::proved : Certainty::shown;
  const Where& at = finding.fault.where;
  finding.fault.summary = fmt::format(
      "the {} scale of layer {} was set where the largest value was {:.4g} ({}) and clips here, where it is {:.4g}: "
      "{:g} x {:.4g} = {:.4g} is the largest that fits; {} cut off in {}",
      first->target, at.layer.value_or(-1), std::get<double>(*find(finding.fault.evidence, "calibrated_absmax")),
      to_string(*find(finding.fault.evidence, "calibrated_in")), first->absmax, double{info(first->format).max_finite},
      first->grid->first(), double{info(first->format).max_finite} * first->grid->first(), counted(clipped, "value"),
      counted(finding.explains.size(), "store"));
  finding.fault.fix = "compute the scale per request or per token, or store the KV cache unquantized";
  out.found.push_back(std::move(finding));
  return out;
}

}  // namespace nanscope
