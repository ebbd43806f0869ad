#include <fmt/format.h>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// p = exp(s - max) / sum over the tokens that a grammar allows: a row of which it allows none is -Inf alone.
Explanation explain_token_softmax(const Subject& subject) {
  const std::optional<InputTensor> logits = input_tensor(subject, {"logits"});
  if (!logits) return {};
  const std::int64_t row = logits->row_of(subject);
  const std::int64_t legal = count_attribute(subject.op, "legal", logits->tensor.channels);
  Explanation found;
  found.numbers = {{"legal tokens", legal}, {"vocabulary", logits->tensor.channels}};
  if (subject.bad && legal == 0) {
    found.origin = true;
    found.text = fmt::format("the grammar allows none of {} tokens: the row is -Inf alone, -Inf - -Inf is NaN",
                             logits->tensor.channels);
    return found;
  }
  if (const auto bad = bad_channel(subject.facts, *logits, row, 0, logits->tensor.channels)) {
    found.element = Element{logits->tensor.id, row, *bad};
    found.text = fmt::format("logit {} of the row is bad, the sum makes the whole row bad", *bad);
    return found;
  }
  found.origin = subject.bad;
  found.element = Element{logits->tensor.id, row, subject.element.channel};
  found.text = fmt::format("{} legal tokens, all logits of the row are finite", legal);
  return found;
}

}  // namespace nanscope
