/// A rotary embedding that pairs other channels, or turns the other way round.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_rope_pairs(const TriedOp& subject);

std::vector<OpForm> propose_rope_pairs(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope || subject.form.variant != kHalves) return {};
  made.add("pairs of neighbours in the rotary embedding instead of halves",
           [](OpForm& form) { form.variant = kNeighbours; });
  made.add("a rotary embedding that turns backwards", [](OpForm& form) { form.variant = kBackwards; });
  return made.take();
}

}  // namespace nanscope
