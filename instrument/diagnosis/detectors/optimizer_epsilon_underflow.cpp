#include <fmt/format.h>

#include <optional>

#include "core/counted.h"
#include "core/numbers/codec.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

/// The format of an AdamW's state, where its epsilon is 0 in it.
std::optional<Format> loses_epsilon(const Op& op) {
  const auto* form = op.kind == OpKind::adamw ? op.get<AdamWAttributes>() : nullptr;
  if (form == nullptr || !form->eps || !form->state) return std::nullopt;
  const std::optional<Format> state = format_from_name(*form->state);
  if (!state) return std::nullopt;
  const float rounded = decode(*state, encode(*state, static_cast<float>(*form->eps), Overflow::saturate));
  return rounded == 0 ? state : std::nullopt;
}

}  // namespace

/// m / (sqrt(v) + eps) where eps is below the format: a second moment of 0, which small gradients have there, leaves
/// m / 0 or 0 / 0.
Findings detect_optimizer_epsilon_underflow(Survey& survey) {
  Findings out;
  const std::vector<const Op*> steps = survey.ops(OpKind::adamw);
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    const std::optional<Format> state = loses_epsilon(op);
    if (!state || !birth.bad_parameters.empty()) continue;
    const auto& form = *op.get<AdamWAttributes>();
    const Tensor* second = survey.run().output(op, "v");
    const std::int64_t zeros = second != nullptr ? static_cast<std::int64_t>(second->health.zero) : 0;
    const Tensor& weight = survey.tensor(birth);
    Finding finding = finding_at(survey, i);
    finding.rank = Rank::recomputed;
    finding.fault.certainty = Certainty::proved;
    finding.fault.evidence = {{"eps", *form.eps},
                              {"state", std::string(name(*state))},
                              {"zeros", zeros},
                              {"nan", static_cast<std::int64_t>(weight.health.nan)},
                              {"inf", static_cast<std::int64_t>(weight.health.pos_inf + weight.health.neg_inf)}};
    finding.fault.summary = fmt::format(
        "eps = {:g} is 0 in {}, the format of the optimizer's state, and so are {} of its second moments: {} of {} "
        "elements of {} are divided by 0",
        *form.eps, name(*state), zeros, weight.health.bad(), weight.health.count, finding.fault.tensor);
    finding.fault.fix = "keep the optimizer's state in f32, or take an eps that the format has (1e-4 in f16)";
    out.found.push_back(std::move(finding));
  }
  // It befalls all weights of a step together: the first is told, with the others' symptoms.
  for (std::size_t i = 1; i < out.found.size(); ++i) {
    Finding& first = out.found.front();
    const Finding& other = out.found[i];
    first.explains.insert(first.explains.end(), other.explains.begin(), other.explains.end());
    first.fault.ops.insert(first.fault.ops.end(), other.fault.ops.begin(), other.fault.ops.end());
  }
  if (out.found.size() > 1) {
    out.found.front().fault.summary +=
        fmt::format(", and {} more are like it", counted(out.found.size() - 1, "weight"));
    out.found.erase(out.found.begin() + 1, out.found.end());
  }
  if (steps.empty()) {
    out.not_in_dump("no step of an optimizer was recorded or dumped");
  } else {
    exclude(out, survey,
            fmt::format("no eps of {} of AdamW is 0 in the format of its state where a weight is born NaN or Inf",
                        counted(steps.size(), "step")));
  }
  return out;
}

}  // namespace nanscope
