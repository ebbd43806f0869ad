#include <fmt/format.h>

#include "instrument/diagnosis/detectors/deviations_of_kind.h"

namespace nanscope {

/// Codes were read or written under their scale left out, inverted, applied twice, transposed or another's.
Findings detect_scale_misapplied(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const Deviation& deviation = survey.deviations[i];
    const Recomputed* best = deviation.explanation();
    if (best == nullptr || best->form.about != About::scale) continue;
    const Recomputed* rival = deviation.rival();
    Finding finding = finding_at(survey, deviation, i);
    finding.rank = rival != nullptr && rival->form.about != About::scale ? Rank::counted : Rank::recomputed;
    finding.fault.certainty = rival == nullptr ? Certainty::proved : Certainty::possible;
    finding.fault.summary =
        fmt::format("{} comes out of its inputs only with {}: {:.3g} % of the elements that are off otherwise{}",
                    finding.fault.tensor, best->form.text, 100 * best->share(),
                    rival != nullptr ? fmt::format("; or with {}", rival->form.text) : "");
    finding.fault.fix = "apply each scale once, in the direction and with the shape that its codes were written under";
    out.found.push_back(std::move(finding));
  }
  exclude_deviations(out, survey, "nothing could be recomputed: dump inputs, outputs and weights of the same ops");
  return out;
}

}  // namespace nanscope
