#include <fmt/format.h>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// out[t] = sum over j of weights[t, j] * expert ids[t, j]'s output: a bad weight, a bad element of a chosen expert,
/// else the expert that weighs most.
Explanation explain_expert_mix(const Subject& subject) {
  const std::vector<InputTensor> inputs = input_tensors(subject);
  if (inputs.size() < 3) return {};
  const InputTensor& weights = inputs[0];
  const InputTensor& ids = inputs[1];
  const std::int64_t row = weights.row_of(subject);
  Explanation found;
  if (const auto bad = bad_channel(subject.facts, weights, row, 0, weights.tensor.channels)) {
    found.element = Element{weights.tensor.id, row, *bad};
    found.text = fmt::format("the weight of choice {} is {}", *bad, value_text(weights.data.get(), row, *bad));
    return found;
  }
  std::int64_t heaviest = 0;
  for (std::int64_t j = 0; ids.data && j < ids.tensor.channels; ++j) {
    const auto expert = static_cast<std::size_t>(ids.data->code(row, j));
    if (expert + 2 >= inputs.size()) continue;
    if (subject.bad && bad_channel(subject.facts, inputs[expert + 2], row, subject.element.channel, 1)) {
      found = follow_element(subject, inputs[expert + 2], subject.element.channel,
                             fmt::format("the output of expert {}", expert));
      return found;
    }
    if (weights.value(row, j) > weights.value(row, heaviest)) heaviest = j;
  }
  if (!ids.data || static_cast<std::size_t>(ids.data->code(row, heaviest)) + 2 >= inputs.size()) return {};
  const auto expert = static_cast<std::size_t>(ids.data->code(row, heaviest));
  return follow_element(subject, inputs[expert + 2], subject.element.channel,
                        fmt::format("a mix of experts, most of expert {}", expert));
}

}  // namespace nanscope
