#include <fmt/format.h>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {

/// A loss that is multiplied by a mask and divided by its sum: of a batch that is masked as a whole it is 0 / 0, and so
/// are all gradients.
Findings detect_batch_without_targets(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    const auto* form = op.kind == OpKind::cross_entropy_gradient ? op.get<LossAttributes>() : nullptr;
    if (form == nullptr || form->targets.value_or(1) != 0) continue;
    Finding finding = finding_at(survey, i);
    finding.rank = Rank::recomputed;
    finding.fault.certainty = Certainty::proved;
    finding.fault.evidence = {{"targets", std::int64_t{0}}, {"rows", static_cast<std::int64_t>(birth.rows.size())}};
    finding.fault.summary =
        fmt::format("no token of the batch is a target: the mean of the loss is 0 / 0, and {} NaN",
                    birth.rows.size() == 1 ? "its row's gradient is" : "the gradients of all its rows are");
    finding.fault.fix =
        "leave tokens that are no targets out of the loss instead of multiplying by 0, and skip a batch "
        "without any";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  const std::size_t losses = survey.ops(OpKind::cross_entropy_gradient).size();
  if (losses == 0) {
    out.not_in_dump("no gradient of a loss was recorded or dumped");
  } else {
    exclude(out, survey, fmt::format("every one of {} with NaN or Inf has targets", counted(losses, "batch")));
  }
  return out;
}

}  // namespace nanscope
