/// A norm's gain as it is stored where the model adds 1 to it, or the other way round.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_norm_offset(const TriedOp& subject);

std::vector<OpForm> propose_norm_offset(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::layer_norm) return {};
  const bool plus = subject.form.scale_power == kOnePlus;
  made.add(plus ? "the weight as the gain, where the model has 1 + weight"
                : "1 + weight as the gain, where the model has the weight",
           [&](OpForm& form) { form.scale_power = plus ? kAsStored : kOnePlus; });
  return made.take();
}

}  // namespace nanscope
