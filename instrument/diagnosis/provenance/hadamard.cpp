#include <algorithm>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// Every channel of a head is a sum of all of its head: a bad one of them, else the largest.
Explanation explain_hadamard(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.width(), 1);
  const std::int64_t first = subject.element.channel / width * width;
  const auto bad = bad_channel(subject.facts, *x->tensor, *x->row, first, width);
  const std::int64_t channel = bad ? *bad : largest_channel(subject.facts, *x->tensor, *x->row, first, width);
  return follow_element(subject, *x, channel, "the head, rotated");
}

}  // namespace nanscope
