/// A term of a residual sum left out, or added twice.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_residual(const TriedOp& subject);

std::vector<OpForm> propose_residual(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::residual_add) return {};
  made.add("the branch left out", [](OpForm& form) { form.variant = kFirstOnly; });
  made.add("the residual left out", [](OpForm& form) { form.variant = kSecondOnly; });
  made.add("the residual added twice", [](OpForm& form) { form.variant = kFirstTwice; });
  made.add("the branch added twice", [](OpForm& form) { form.variant = kSecondTwice; });
  return made.take();
}

}  // namespace nanscope
