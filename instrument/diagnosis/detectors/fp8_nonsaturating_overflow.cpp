#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope {

/// A cast to fp8 without saturation: what lies beyond the largest finite code became NaN or Inf.
Findings detect_fp8_nonsaturating_overflow(Survey& survey) {
  Findings out;
  std::int64_t looked_at = 0;
  for (std::size_t c = 0; c < survey.casts.size(); ++c) {
    const Cast& cast = survey.casts[c];
    looked_at += info(cast.format).exponent_bits > 0 ? 1 : 0;
    if (cast.bad == 0 || (cast.has_source() && cast.bad_of_finite == 0)) continue;
    const Tensor& codes = *survey.run().tensor(cast.codes);
    Finding finding = finding_at(survey, codes, survey.run().bad_rows(codes));
    finding.fault.breaks = true;
    finding.rank = !cast.has_source() ? Rank::resemblance : cast.reach > 1 ? Rank::bits_changed : Rank::counted;
    finding.fault.certainty = cast.has_source() ? Certainty::proved : Certainty::possible;
    finding.explains.push_back({Symptom::Kind::cast, c});
    for (std::size_t i = 0; i < survey.births.size(); ++i) {
      if (survey.births[i].tensor == cast.codes) finding.explains.push_back({Symptom::Kind::birth, i});
    }
    if (finding.explains.size() == 1) continue;  // nobody's
    finding.fault.evidence.push_back({"codes_bad", cast.bad});
    add_cast_evidence(finding, cast);
    finding.fault.summary =
        cast.has_source()
            ? fmt::format(
                  "{} of {} {} NaN or Inf though made of finite values: up to {:.3g} times what fits into {}, "
                  "and the cast does not saturate",
                  counted(cast.bad, "code"), finding.fault.tensor, cast.bad == 1 ? "is" : "are", cast.reach,
                  name(cast.format))
            : fmt::format(
                  "{} of {} {} NaN or Inf and no value before the cast is known to be: the cast does not "
                  "saturate",
                  counted(cast.bad, "code"), finding.fault.tensor, cast.bad == 1 ? "is" : "are");
    finding.fault.fix = "cast with saturation, and compute the scale from the values that are cast";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  if (looked_at == 0) {
    out.not_in_dump("no codes of fp8 were dumped");
  } else {
    exclude(out, survey,
            fmt::format("no code of {} is NaN or Inf and made of a finite value", counted(looked_at, "fp8 cast")));
  }
  return out;
}

}  // namespace nanscope
