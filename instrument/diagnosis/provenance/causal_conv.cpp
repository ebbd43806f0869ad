#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// y[t] of a channel is made of its own inputs of a few rows up to t: the nearest bad one, or what an earlier step
/// left.
Explanation explain_causal_conv(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  Facts& facts = subject.facts;
  const std::int64_t channel = subject.element.channel;
  const Tensor* weight = facts.run.input(subject.op, "weight");
  const std::int64_t taps = weight != nullptr && weight->tokens > 0 ? weight->tokens : 1;
  for (std::int64_t back = 0; subject.bad && back < taps && back <= *x->row; ++back) {
    if (!bad_channel(facts, *x->tensor, *x->row - back, channel, 1)) continue;
    Explanation found;
    found.element = Element{x->tensor->id, *x->row - back, channel};
    found.text = back == 0 ? "the convolution takes in this token"
                           : "the convolution takes in the tokens before, one of which is bad";
    return found;
  }
  return follow_element(subject, *x, channel, "the convolution takes in this token");
}

}  // namespace nanscope
