/// The chosen experts' weights normalised where the model does not, or the other way round; another score.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_router(const TriedOp& subject);

std::vector<OpForm> propose_router(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::route || subject.out.role != "router_weights") return {};
  const int own = subject.form.variant;
  made.add((own & kNormed) != 0 ? "the weights of the chosen experts not normalised"
                                : "the weights of the chosen experts normalised",
           [&](OpForm& form) { form.variant = own ^ kNormed; });
  if ((own & kAsGiven) != 0) return made.take();
  made.add((own & kSigmoid) != 0 ? "a softmax instead of sigmoids" : "sigmoids instead of a softmax",
           [&](OpForm& form) { form.variant = own ^ kSigmoid; });
  made.add((own & kSigmoid) != 0 ? "a softmax instead of sigmoids, and the sum otherwise"
                                 : "sigmoids instead of a softmax, and the sum otherwise",
           [&](OpForm& form) { form.variant = own ^ kSigmoid ^ kNormed; });
  return made.take();
}

}  // namespace nanscope
