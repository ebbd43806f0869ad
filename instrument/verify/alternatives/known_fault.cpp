/// What the diagnosis knows of wrong ops of this kind: scales, readings of codes, parts left out of sums.
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_known_fault(const TriedOp& subject);

std::vector<OpForm> propose_known_fault(const TriedOp& subject) {
  const Recipe* recipe = recipe_of(subject.op.kind);
  return recipe != nullptr ? recipe->faults(subject.values, subject.op, subject.out) : std::vector<OpForm>{};
}

}  // namespace nanscope
