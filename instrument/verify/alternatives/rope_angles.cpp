/// Other angles of the rotary embedding: base, scaling, how much of a head is rotated.
#include "instrument/verify/rope_variants.h"

namespace nanscope {

std::vector<OpForm> propose_rope_angles(const TriedOp& subject);

std::vector<OpForm> propose_rope_angles(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope || subject.form.variant != kHalves) return {};
  const Step* step = subject.run().step(subject.op.step);
  std::int64_t context = 0;
  for (std::size_t i = 0; step != nullptr && i < step->spans.size(); ++i)
    context = std::max(context, step->spans[i].context);
  for (const RopeVariant& variant : rope_variants(subject.model, subject.model.local(subject.op), context))
    made.add(variant.text, [&](OpForm& form) { form.angles = variant.angles; });
  return made.take();
}

}  // namespace nanscope
