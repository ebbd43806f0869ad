/// A product without its bias.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_bias_left_out(const TriedOp& subject);

std::vector<OpForm> propose_bias_left_out(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::gemm || subject.op.input("bias") == 0) return {};
  made.add("the bias left out", [](OpForm& form) { form.variant = kNoBias; });
  return made.take();
}

}  // namespace nanscope
