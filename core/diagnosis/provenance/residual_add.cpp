#include <fmt/format.h>

#include <cmath>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// out = a + b in f32, rounded to out's format: which side is bad, or which one brought it over the limit.
Explanation explain_residual_add(const Subject& subject) {
  const std::vector<InputTensor> sides = input_tensors(subject);
  const std::int64_t channel = subject.element.channel;
  const InputTensor* best = nullptr;
  for (const InputTensor& side : sides) {
    if (bad_channel(subject.facts, side, side.row_of(subject), channel, 1)) {
      return follow_element(subject, side, channel, fmt::format("the sum's side '{}'", side.role));
    }
    if (best == nullptr ||
        std::abs(side.value(side.row_of(subject), channel)) > std::abs(best->value(best->row_of(subject), channel))) {
      best = &side;
    }
  }
  if (best == nullptr) return {};
  Explanation found = follow_element(subject, *best, channel, "the larger side of the sum");
  if (subject.bad && sides.size() == 2 && sides[0].data && sides[1].data) {
    const float a = sides[0].value(sides[0].row_of(subject), channel);
    const float b = sides[1].value(sides[1].row_of(subject), channel);
    const float limit = info(subject.tensor.format).max_finite;
    found.numbers = {
        {"a", double{a}}, {"b", double{b}}, {"a + b", double{a} + double{b}}, {"largest finite", double{limit}}};
    found.text = fmt::format("{:.9g} + {:.9g} = {:.9g} is beyond the largest finite {} {:.9g}", a, b,
                             double{a} + double{b}, name(subject.tensor.format), limit);
    found.danger = true;
  }
  return found;
}

}  // namespace nanscope
