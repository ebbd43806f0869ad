#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// A tensor that was imported from a dump: what its module computes is not known, what went into it is. The bad input
/// of the same row, else of any row; with healthy inputs alone, this is where it was born.
Explanation explain_dumped(const Subject& subject) {
  const std::vector<InputTensor> inputs = input_tensors(subject);
  if (inputs.empty()) return {};
  for (const InputTensor& input : inputs) {
    const std::int64_t row = input.row_of(subject);
    if (bad_channel(subject.facts, input, row, 0, input.tensor.channels))
      return follow_row(subject, input, "what went in is bad");
  }
  for (const InputTensor& input : inputs) {
    const std::vector<std::int64_t> bad = subject.facts.bad_rows(input.tensor);
    if (bad.empty()) continue;
    Explanation found;
    const auto channel = bad_channel(subject.facts, input, bad.front(), 0, input.tensor.channels);
    found.element = Element{input.tensor.id, bad.front(), channel.value_or(0)};
    found.text = "another row of what went in is bad";
    return found;
  }
  Explanation found = follow_row(subject, inputs.front(), "what went in is healthy");
  found.origin = subject.bad;
  found.danger = subject.bad;
  return found;
}

}  // namespace nanscope
