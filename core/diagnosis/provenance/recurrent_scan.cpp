#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// h[t] = decay * h[t-1] + (1 - decay) * x[t], channel by channel: this token's x, or the state before it.
Explanation explain_recurrent_scan(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x"});
  if (!x) return {};
  const std::int64_t channel = subject.element.channel;
  const bool x_bad = bad_channel(subject.facts, *x, x->row_of(subject), channel, 1).has_value();
  if (!x_bad && subject.bad && subject.element.row > 0) {
    const bool before = subject.data ? is_bad(subject.data->value(subject.element.row - 1, channel))
                                     : subject.facts.row_bad(subject.tensor, subject.element.row - 1);
    if (before) {
      Explanation found;
      found.element = Element{subject.tensor.id, subject.element.row - 1, channel};
      found.text = "the recurrent state was bad before this token";
      return found;
    }
  }
  return follow_element(subject, *x, channel, "the recurrence takes in this token");
}

}  // namespace nanscope
