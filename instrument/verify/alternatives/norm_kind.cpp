/// The mean subtracted where the model does not, or the other way round; the square root of the sum for that of the
/// mean.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_norm_kind(const TriedOp& subject);

std::vector<OpForm> propose_norm_kind(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::layer_norm) return {};
  made.add("a layer norm, which subtracts the mean", [](OpForm& form) { form.variant = kLayer; });
  made.add("an rms norm, which subtracts no mean", [](OpForm& form) { form.variant = kRms; });
  made.add("a norm by the root of the sum, not of the mean", [](OpForm& form) { form.variant = kL2; });
  const auto width = static_cast<int>(subject.config().head_dim);
  made.add("a norm over each head", [&](OpForm& form) { form.shift = width; });
  made.add("a norm over the whole row", [&](OpForm& form) { form.shift = static_cast<int>(subject.out.channels); });
  return made.take();
}

}  // namespace nanscope
