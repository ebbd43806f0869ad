/// Other angles of the rotary embedding: base, scaling, how much of a head is rotated.
#include "instrument/verify/rope_variants.h"

namespace nanscope {

std::vector<OpForm> propose_rope_angles(const TriedOp& subject);

std::vector<OpForm> propose_rope_angles(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope || subject.form.variant != pairing(subject.config())) return {};
  const bool local = subject.model.local(subject.op);
  for (const RopeVariant& variant : rope_variants(subject.model, local, longest_context(subject)))
    made.add(variant.text, [&](OpForm& form) { form.angles = variant.angles; });
  return made.take();
}

}  // namespace nanscope
