#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// A channel of values has a state of its own: bad since an earlier token, or by what this token brings.
Explanation explain_delta_rule(const Subject& subject) {
  const std::optional<Operand> v = operand(subject, {"v"});
  if (!v) return explain_by_inputs(subject);
  if (!v->row) return follow_unplaced(subject, *v);
  Facts& facts = subject.facts;
  const std::int64_t channel = subject.element.channel;
  const bool v_bad = bad_channel(facts, *v->tensor, *v->row, channel, 1).has_value();
  const std::int64_t before = subject.element.row - 1;
  if (!v_bad && subject.bad && before >= 0 && bad_channel(facts, subject.tensor, before, channel, 1)) {
    Explanation found;
    found.element = Element{subject.tensor.id, before, channel};
    found.text = "the state of this channel was bad before this token";
    return found;
  }
  if (v_bad || !subject.bad) return follow_element(subject, *v, channel, "the delta rule takes in this token's value");
  return explain_by_inputs(subject);
}

}  // namespace nanscope
