#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// h[t] = decay * h[t-1] + (1 - decay) * x[t], channel by channel: this token's x, or the state before it.
Explanation explain_recurrent_scan(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  Facts& facts = subject.facts;
  const std::int64_t channel = subject.element.channel;
  const std::int64_t before = subject.element.row - 1;
  const bool x_bad = bad_channel(facts, *x->tensor, *x->row, channel, 1).has_value();
  if (!x_bad && subject.bad && before >= 0 && bad_channel(facts, subject.tensor, before, channel, 1)) {
    Explanation found;
    found.element = Element{subject.tensor.id, before, channel};
    found.text = "the recurrent state was bad before this token";
    return found;
  }
  return follow_element(subject, *x, channel, "the recurrence takes in this token");
}

}  // namespace nanscope
