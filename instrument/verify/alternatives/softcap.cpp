/// The cap of the scores left out, or put where there is none.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_softcap(const TriedOp& subject);

std::vector<OpForm> propose_softcap(const TriedOp& subject) {
  Proposals made(subject);
  const bool scores = subject.op.kind == OpKind::attention_scores && subject.op.input("scores") == 0;
  if (!scores && subject.op.kind != OpKind::attention) return {};
  if (subject.form.cap > 0) made.add("the cap of the scores left out", [](OpForm& form) { form.cap = 0; });
  for (const double cap : {50.0, 30.0})
    made.add(fmt::format("scores capped at {}", cap), [&](OpForm& form) { form.cap = cap; });
  return made.take();
}

}  // namespace nanscope
