#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// The index of the row's largest logit; of an all-NaN row none is, and the index says only how the search starts.
Explanation explain_argmax(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x", "logits", "probs"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  Facts& facts = subject.facts;
  const std::int64_t row = *x->row;
  const std::int64_t width = x->tensor->channels;
  const std::optional<std::int64_t> bad = bad_channel(facts, *x->tensor, row, 0, kWholeRow);
  const std::int64_t chosen = static_cast<std::int32_t>(subject.code.value_or(0));
  Explanation found;
  if (!x->tensor->known) {
    found = follow_row(subject, *x, fmt::format("token {} was chosen", chosen));
  } else if (bad) {
    const std::int64_t many = count_bad(facts, *x->tensor, row, 0, kWholeRow).value_or(width);
    found.numbers = {{"bad logits", many}, {"logits", width}};
    found.element = Element{x->tensor->id, row, *bad};
    found.text =
        fmt::format("{} of {} logits are NaN or Inf, token {} is what the search falls back to", many, width, chosen);
  } else {
    found.element = Element{x->tensor->id, row, chosen >= 0 && chosen < width ? chosen : 0};
    found.text = fmt::format("logit {} is the largest of {}", chosen, width);
    const std::vector<double> logits = made_row(facts, *x->tensor, row);
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (of_dump(subject.tensor) && largest != logits.end() &&
        *largest > logits[static_cast<std::size_t>(found.element->channel)]) {
      found.text = fmt::format("token {} was chosen of {}, and token {} has the largest logit", chosen, width,
                               largest - logits.begin());
    }
  }
  return found;
}

/// A draw: any token whose logit is no NaN may be it.
Explanation explain_sample(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"logits"});
  if (!x || !x->row || bad_channel(subject.facts, *x->tensor, *x->row, 0, kWholeRow)) return explain_argmax(subject);
  const std::int64_t chosen = static_cast<std::int32_t>(subject.code.value_or(0));
  Explanation found;
  found.element = Element{x->tensor->id, *x->row, chosen >= 0 && chosen < x->tensor->channels ? chosen : 0};
  found.text = fmt::format("token {} was drawn from {} logits", chosen, x->tensor->channels);
  return found;
}

}  // namespace nanscope
