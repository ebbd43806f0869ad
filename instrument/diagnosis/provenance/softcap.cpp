#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// out = cap * tanh(x / cap): what went in at the same place.
Explanation explain_softcap(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  return x ? follow_element(subject, *x, subject.element.channel, "capped") : Explanation{};
}

}  // namespace nanscope
