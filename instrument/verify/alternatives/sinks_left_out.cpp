/// Attention over the keys alone, where each head has a learned score beside theirs (gpt-oss).
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_sinks_left_out(const TriedOp& subject);

std::vector<OpForm> propose_sinks_left_out(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.input("sinks") != 0)
    made.add("the attention sinks left out", [](OpForm& form) { form.without_sinks = true; });
  return made.take();
}

}  // namespace nanscope
