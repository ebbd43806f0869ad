/// An expert left out, or in the place of another, whole or in part; two of them swapped.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_experts(const TriedOp& subject);

std::vector<OpForm> propose_experts(const TriedOp& subject) {
  if (subject.op.kind != OpKind::expert_mix) return {};
  constexpr std::int64_t kMost = 16;  ///< whose pairs are tried
  Proposals made(subject);
  const std::int64_t experts = std::min(kMost, subject.config().experts);
  for (std::int64_t one = 0; one < experts; ++one) {
    for (std::int64_t other = one + 1; other < experts; ++other) {
      made.add(fmt::format("experts {} and {} in each other's place", one, other), [&](OpForm& form) {
        form.number = kSwapped;
        form.heads = one;
        form.other = other;
      });
    }
  }
  std::vector<OpForm> forms = made.take();
  for (OpForm& form : recipe_of(subject.op.kind)->faults(subject.values, subject.op, subject.out))
    forms.push_back(std::move(form));
  return forms;
}

}  // namespace nanscope
