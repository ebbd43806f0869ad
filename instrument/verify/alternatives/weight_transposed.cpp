/// A square weight read the other way round.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_weight_transposed(const TriedOp& subject);

std::vector<OpForm> propose_weight_transposed(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::gemm) return {};
  made.add("the weight transposed", [](OpForm& form) { form.turned = true; });
  return made.take();
}

}  // namespace nanscope
