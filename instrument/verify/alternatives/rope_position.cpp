/// A rotary embedding for other positions.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_rope_position(const TriedOp& subject);

std::vector<OpForm> propose_rope_position(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope || subject.form.variant != pairing(subject.config())) return {};
  for (const int off : {1, -1, 2, -2, 3, -3, 4, -4})
    made.add(fmt::format("positions off by {}", off), [&](OpForm& form) { form.shift = off; });
  return made.take();
}

}  // namespace nanscope
