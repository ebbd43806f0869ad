#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

constexpr double kLargestHalf = 65504;

/// What the loss of a backward pass was multiplied by.
std::optional<double> loss_scale_of(Survey& survey, StepId step) {
  for (const Op& op : survey.run().content(step).ops) {
    const auto* form = op.kind == OpKind::cross_entropy_gradient ? op.get<LossAttributes>() : nullptr;
    if (form != nullptr) return form->loss_scale;
  }
  return std::nullopt;
}

}  // namespace

/// Gradients in f16 are scaled by the loss so that small ones are not lost (Micikevicius et al. 2018, 3.2); too large a
/// scale makes Inf of the large ones.
Findings detect_loss_scale_overflow(Survey& survey) {
  Findings out;
  std::int64_t halves = 0;
  double largest = 0;
  for (const Step& step : survey.run().steps()) {
    if (step.kind != StepKind::backward) continue;
    for (const Tensor& tensor : survey.run().content(step.id).tensors) {
      if (!tensor.known || tensor.format != Format::f16) continue;
      ++halves;
      largest = std::max(largest, double{tensor.health.absmax});
    }
  }
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Tensor& tensor = survey.tensor(birth);
    const Step* step = survey.run().step(birth.step);
    if (step == nullptr || step->kind != StepKind::backward || tensor.format != Format::f16) continue;
    const std::optional<double> scale = loss_scale_of(survey, birth.step);
    if (!scale || !(*scale > 1) || tensor.health.pos_inf + tensor.health.neg_inf == 0) continue;
    Finding finding = finding_at(survey, i);
    finding.rank = Rank::counted;
    finding.fault.certainty = Certainty::shown;
    finding.fault.evidence = {{"loss_scale", *scale},
                              {"rows", static_cast<std::int64_t>(birth.rows.size())},
                              {"largest_finite", kLargestHalf}};
    finding.fault.summary =
        fmt::format("{}: gradients of a loss times {:g} are beyond {:g}, the largest of f16, and became Inf",
                    rows_text(birth, finding.fault.tensor), *scale, kLargestHalf);
    finding.fault.fix =
        "skip steps whose gradients are not finite and halve the scale of the loss then, or keep gradients in bf16";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  if (halves == 0) {
    out.excluded("no gradient is kept in f16");
  } else {
    exclude(out, survey,
            fmt::format("the largest magnitude of {} in f16 is {:.5g}", counted(halves, "gradient"), largest));
  }
  return out;
}

}  // namespace nanscope
