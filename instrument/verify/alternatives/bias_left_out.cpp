/// A product or a norm without its bias.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_bias_left_out(const TriedOp& subject);

std::vector<OpForm> propose_bias_left_out(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.input("bias") == 0) return {};
  if (subject.op.kind == OpKind::layer_norm)
    made.add("the bias left out", [](OpForm& form) { form.rounded = kNormWithoutBias; });
  if (subject.op.kind != OpKind::gemm) return made.take();
  made.add("the bias left out", [](OpForm& form) { form.variant = kNoBias; });
  return made.take();
}

}  // namespace nanscope
