/// A part of the gated delta rule left out: the state that earlier steps left, the decay, the norm of queries and keys.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_delta_rule(const TriedOp& subject);

std::vector<OpForm> propose_delta_rule(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::delta_rule) return {};
  // Which form of the weights came nearest says nothing where the rule itself is another.
  std::vector<std::optional<Format>> loaded{subject.form.weight_as};
  if (const auto served = subject.values.served_format(subject.op, "conv"); served && served != subject.form.weight_as)
    loaded.emplace_back(served);
  for (const std::optional<Format> weights : loaded) {
    const auto add = [&](std::string text, int variant) {
      made.add(std::move(text), [&](OpForm& form) {
        form.variant = variant;
        form.weight_as = weights;
      });
    };
    add("the state of the tokens before left out", kFreshState);
    add("the decay of the state left out", kNoDecay);
    add("the norm of queries and keys left out", kNoLength);
  }
  return made.take();
}

}  // namespace nanscope
