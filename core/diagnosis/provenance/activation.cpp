#include <cmath>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// Element by element; swiglu is silu(x) * up: the bad side, else the larger one.
Explanation explain_activation(const Subject& subject) {
  const std::vector<InputTensor> inputs = input_tensors(subject);
  const InputTensor* best = nullptr;
  for (const InputTensor& input : inputs) {
    const std::int64_t row = input.row_of(subject);
    const std::int64_t channel = subject.element.channel;
    const bool bad = bad_channel(subject.facts, input, row, channel, 1).has_value();
    if (bad) return follow_element(subject, input, channel, "element by element");
    if (best == nullptr ||
        std::abs(input.value(row, channel)) > std::abs(best->value(best->row_of(subject), channel))) {
      best = &input;
    }
  }
  if (best == nullptr) return {};
  Explanation found = follow_element(subject, *best, subject.element.channel, "element by element, the larger side");
  found.danger = subject.bad;
  return found;
}

}  // namespace nanscope
