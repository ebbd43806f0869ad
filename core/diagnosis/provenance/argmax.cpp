#include <fmt/format.h>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// The index of the row's largest logit; of an all-NaN row none is, and the index says only how the search starts.
Explanation explain_argmax(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x", "logits"});
  if (!x) return {};
  const std::int64_t row = x->row_of(subject);
  const std::int64_t width = x->tensor.channels;
  const std::optional<std::int64_t> bad = bad_channel(subject.facts, *x, row, 0, width);
  std::int64_t chosen = 0;
  if (subject.data)
    chosen = static_cast<std::int32_t>(subject.data->code(subject.element.row, subject.element.channel));
  Explanation found;
  if (bad) {
    const std::int64_t many = count_bad(*x, row, 0, width).value_or(width);
    found.numbers = {{"bad logits", many}, {"logits", width}};
    found.element = Element{x->tensor.id, row, *bad};
    found.text =
        fmt::format("{} of {} logits are NaN or Inf, token {} is what the search falls back to", many, width, chosen);
    return found;
  }
  found.element = Element{x->tensor.id, row, chosen >= 0 && chosen < width ? chosen : 0};
  found.text = fmt::format("logit {} is the largest of {}", chosen, width);
  return found;
}

}  // namespace nanscope
