#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// out = a + sigmoid(gate) * b: the gate, which reaches the whole row, else the branch that is bad at this channel.
Explanation explain_gated_add(const Subject& subject) {
  const std::int64_t channel = subject.element.channel;
  const std::optional<Operand> gate = operand(subject, {"gate"});
  if (gate && gate->row && bad_channel(subject.facts, *gate->tensor, *gate->row, 0, kWholeRow)) {
    return follow_row(subject, *gate, "the gate of the shared expert is bad");
  }
  for (const char* role : {"a", "b"}) {
    const std::optional<Operand> side = operand(subject, {role});
    if (side && side->row && bad_channel(subject.facts, *side->tensor, *side->row, channel, 1)) {
      return follow_element(subject, *side, channel, *role == 'a' ? "the chosen experts" : "the shared expert");
    }
  }
  return explain_by_inputs(subject);
}

}  // namespace nanscope
