/// A norm that is not done.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_norm_left_out(const TriedOp& subject);

std::vector<OpForm> propose_norm_left_out(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::layer_norm) return {};
  made.add("the norm left out", [](OpForm& form) { form.variant = kNotNormed; });
  return made.take();
}

}  // namespace nanscope
