/// The factor on embeddings left out, or put where there is none.
#include <cmath>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_embedding_scale(const TriedOp& subject);

std::vector<OpForm> propose_embedding_scale(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::embedding || subject.op.name != "embed") return {};
  const double root = std::sqrt(static_cast<double>(subject.config().width));
  made.add("the factor on the embedding left out", [](OpForm& form) { form.number = 0; });
  if (std::abs(subject.form.number - root) > 1e-9 * root)
    made.add("the embedding times the root of its width", [&](OpForm& form) { form.number = root; });
  made.add("the embedding times the width", [&](OpForm& form) { form.number = root * root; });
  return made.take();
}

}  // namespace nanscope
