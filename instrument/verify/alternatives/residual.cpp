/// A term of a residual sum left out, or added twice; without the model's factor.
#include <fmt/format.h>

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
  if (subject.form.number != 0) {
    made.add(fmt::format("the factor of {:.6g} on the branch left out", subject.form.number),
             [](OpForm& form) { form.number = 0; });
  }
  return made.take();
}

}  // namespace nanscope
