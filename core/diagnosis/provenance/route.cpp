#include <fmt/format.h>

#include <cmath>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// The chosen experts' gates, added up: what the weights would have been divided by.
std::optional<double> sum_of_gates(const Subject& subject, const InputTensor& logits, std::int64_t row) {
  const std::optional<TensorRow> ids = subject.facts.run.output(subject.op.id, "ids");
  const std::shared_ptr<const TensorData> chosen = ids ? subject.facts.elements(*ids) : nullptr;
  if (!chosen || !logits.data || subject.element.row >= chosen->tokens) return std::nullopt;
  double sum = 0;
  for (std::int64_t j = 0; j < chosen->channels; ++j) {
    const auto expert = static_cast<std::int64_t>(chosen->code(subject.element.row, j));
    sum += 1 / (1 + std::exp(-double{logits.value(row, expert)}));
  }
  return sum;
}

}  // namespace

/// weight[j] = value[j] / (value[0] + value[1] + ...) over the chosen experts of a row of logits.
Explanation explain_route(const Subject& subject) {
  const std::optional<InputTensor> logits = input_tensor(subject, {"logits"});
  if (!logits) return {};
  Explanation found = follow_row(subject, *logits, "the chosen of a row of logits, divided by their sum");
  if (!found.origin) return found;
  const std::int64_t row = logits->row_of(subject);
  const std::optional<double> sum = sum_of_gates(subject, *logits, row);
  if (sum) found.numbers.push_back({"sum of the chosen gates", *sum});
  const bool rounded = text_attribute(subject.op, "weights").value_or("") == "choice_minus_bias";
  found.text = fmt::format("the {} chosen gates add up to {}{}: 0/0", subject.tensor.channels,
                           sum ? fmt::format("{:.3g}", *sum) : std::string("an unknown sum"),
                           rounded ? std::string_view(", and to 0 once the bias was added to each and taken off again")
                                   : std::string_view(", which is 0 in f32"));
  return found;
}

}  // namespace nanscope
