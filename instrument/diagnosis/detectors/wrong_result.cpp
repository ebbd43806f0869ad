#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/detectors/deviations_of_kind.h"

namespace nanscope {
namespace {

/// An output in which NaN is born is broken by what made the NaN: that rows of it are off as well is the same fault.
bool told_by_birth(const Survey& survey, const Deviation& deviation) {
  return deviation.explanation() == nullptr &&
         std::any_of(survey.births.begin(), survey.births.end(),
                     [&](const Birth& birth) { return birth.tensor == deviation.tensor; });
}

/// Whether each row that is off is so as a whole, and not by its single elements.
bool rows_as_a_whole(const Recomputed& result) {
  return !result.scattered.empty() && result.scattered.size() == result.bad_rows.size();
}

}  // namespace

/// A finite output that is not what its inputs and weights give, with the region, and what explains it if anything
/// does.
Findings detect_wrong_result(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const Deviation& deviation = survey.deviations[i];
    if (told_by_birth(survey, deviation)) continue;
    const Recomputed* best = deviation.explanation();
    const Region region = region_of(survey, deviation);
    Finding finding = finding_at(survey, deviation, i, region);
    finding.rank = Rank::deviation;
    finding.fault.certainty = Certainty::proved;
    const Recomputed* rival = deviation.rival();
    const bool table = survey.run().op(deviation.op)->kind == OpKind::parameter;
    finding.fault.summary = fmt::format(
        "{} is not what {}: {} of {} elements are off ({}), {} {:.3g} times what rounding allows{}{}{}",
        finding.fault.tensor, table ? "the model's config.json gives" : "its inputs give",
        deviation.result.elements - deviation.result.explained, deviation.result.elements,
        region.shape.empty() ? std::string("here and there") : region.shape,
        rows_as_a_whole(deviation.result) ? "each row as a whole by up to" : "by up to", deviation.result.worst.ratio,
        best != nullptr ? fmt::format("; {} explains {:.3g} % of them", best->form.text, 100 * best->share()) : "",
        rival != nullptr ? fmt::format(", {} as many", rival->form.text) : "",
        region.content.empty() ? "" : fmt::format("; it holds {}", region.content));
    finding.fault.fix = table ? "compare the server's rotary settings with the model's config.json"
                        : best != nullptr && rival == nullptr
                            ? "compare the kernel with a reference for this case: " + best->form.text
                            : "run the op again with a reference kernel on the dumped inputs";
    out.found.push_back(std::move(finding));
  }
  exclude_deviations(out, survey, "nothing could be recomputed: dump inputs, outputs and weights of the same ops");
  return out;
}

}  // namespace nanscope
