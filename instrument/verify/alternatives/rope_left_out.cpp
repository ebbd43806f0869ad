/// Queries or keys that are not rotated.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_rope_left_out(const TriedOp& subject);

std::vector<OpForm> propose_rope_left_out(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope) return {};
  made.add("the rotary embedding left out", [](OpForm& form) { form.variant = kNone; });
  return made.take();
}

}  // namespace nanscope
