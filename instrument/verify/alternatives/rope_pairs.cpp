/// A rotary embedding that pairs other channels, or turns the other way round.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_rope_pairs(const TriedOp& subject);

std::vector<OpForm> propose_rope_pairs(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope || subject.form.variant != pairing(subject.config())) return {};
  if (subject.form.variant == kNeighbours) {
    made.add("pairs of halves in the rotary embedding instead of neighbours",
             [](OpForm& form) { form.variant = kHalves; });
    return made.take();
  }
  made.add("pairs of neighbours in the rotary embedding instead of halves",
           [](OpForm& form) { form.variant = kNeighbours; });
  made.add("a rotary embedding that turns backwards", [](OpForm& form) { form.variant = kBackwards; });
  const std::int64_t width = subject.config().head_dim;
  if (subject.form.rotated > 0 && subject.form.rotated < width)
    made.add("all of a head rotated", [&](OpForm& form) { form.rotated = width; });
  return made.take();
}

}  // namespace nanscope
