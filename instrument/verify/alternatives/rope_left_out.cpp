/// Queries or keys that are not rotated, or that are in a layer without rotary positions.
#include "instrument/verify/rope_variants.h"

namespace nanscope {

std::vector<OpForm> propose_rope_left_out(const TriedOp& subject);

std::vector<OpForm> propose_rope_left_out(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::rope) return {};
  if (subject.form.variant == kNone && subject.config().positions == 0) {
    const bool tables = subject.op.input("cos") != 0 && subject.op.input("sin") != 0;
    made.add("a rotary embedding, which the model has in other layers", [&](OpForm& form) {
      form.variant = pairing(subject.config());
      if (!tables) form.angles = subject.model.angles(subject.model.local(subject.op), longest_context(subject));
    });
  }
  made.add("the rotary embedding left out", [](OpForm& form) { form.variant = kNone; });
  return made.take();
}

}  // namespace nanscope
