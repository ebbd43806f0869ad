#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// The experts that were chosen: an output of the op, or of one beside it that read the same.
const Tensor* ids_of(const Subject& subject) {
  RunView& run = subject.facts.run;
  const Tensor* own = run.output(subject.op, "ids");
  if (own != nullptr) return own;
  for (const Op& op : run.content(subject.op.step).ops) {
    const bool beside = op.kind == OpKind::route && op.layer == subject.op.layer && !op.inputs.empty() &&
                        !subject.op.inputs.empty() && op.inputs.front().tensor == subject.op.inputs.front().tensor;
    const Tensor* ids = beside ? run.output(op, "router_ids") : nullptr;
    if (ids != nullptr) return ids;
  }
  return nullptr;
}

/// The chosen experts' gates, added up: what the weights would have been divided by.
std::optional<double> sum_of_gates(const Subject& subject, const Operand& logits) {
  Facts& facts = subject.facts;
  const Tensor* ids = ids_of(subject);
  const auto row = ids != nullptr ? row_in(facts, subject.tensor, subject.element.row, *ids) : std::nullopt;
  if (!row || !has_values(facts, *ids, *row)) return std::nullopt;
  double sum = 0;
  for (std::int64_t j = 0; j < ids->channels; ++j) {
    const auto expert = static_cast<std::int64_t>(code_at(facts, *ids, *row, j).value_or(0));
    const std::optional<float> logit = value_at(facts, *logits.tensor, *logits.row, expert);
    if (!logit) return std::nullopt;
    sum += 1 / (1 + std::exp(-double{*logit}));
  }
  return sum;
}

/// A dump does not say what the weights were divided by: what is named is what f32 cannot tell from 0.
void say_sum(const Subject& subject, const std::optional<double>& sum, Explanation& found) {
  constexpr double kHalfUlpOfOne = 0x1p-24;
  if (!sum || !(*sum < kHalfUlpOfOne)) {
    found.text += "; what the weights of the chosen were divided by was not dumped";
    return;
  }
  const bool none = *sum < double{std::numeric_limits<float>::min()};
  found.text =
      fmt::format("the {} chosen gates, sigmoids of the logits, add up to {:.3g}{}: 0/0", subject.tensor.channels, *sum,
                  none ? ", which is 0 in f32" : ", of which f32 keeps nothing beside a bias of 1");
}

}  // namespace

/// weight[j] = value[j] / (value[0] + value[1] + ...) over the chosen experts of a row of logits.
Explanation explain_route(const Subject& subject) {
  const std::optional<Operand> logits = operand(subject, {"logits", "x"});
  if (!logits) return explain_by_inputs(subject);
  Explanation found = follow_row(subject, *logits, "the chosen of a row of logits, divided by their sum");
  if (!found.origin || !logits->tensor->known) return found;
  const auto& form = attributes<RouteAttributes>(subject.op);
  const std::optional<double> sum = sum_of_gates(subject, *logits);
  if (sum) found.numbers.push_back({"sum of the chosen gates", *sum});
  if (!form.weights) {
    say_sum(subject, sum, found);
    return found;
  }
  const bool rounded = *form.weights == "choice_minus_bias";
  found.text = fmt::format("the {} chosen gates add up to {}{}: 0/0", subject.tensor.channels,
                           sum ? fmt::format("{:.3g}", *sum) : std::string("an unknown sum"),
                           rounded ? std::string_view(", and to 0 once the bias was added to each and taken off again")
                                   : std::string_view(", which is 0 in f32"));
  return found;
}

}  // namespace nanscope
