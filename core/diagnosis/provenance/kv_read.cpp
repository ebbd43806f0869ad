#include <fmt/format.h>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

std::string slot_name(const Slot& slot) { return fmt::format("block {} slot {}", slot.block, slot.slot); }

}  // namespace

/// out = decode(code) * scale: whatever was last written into the slot, by whomever.
Explanation explain_kv_read(const Subject& subject) {
  Explanation found;
  KeyRow key = subject.facts.key_row(subject.step, subject.op.layer, subject.element.row);
  const char* part = key.in_context ? "in the context" : "in the tail of the block, beyond the context";
  found.numbers.push_back({"key", subject.element.row});
  found.numbers.push_back({"context", subject.step.context});
  if (!key.slot) {
    found.origin = subject.bad;
    found.text = fmt::format("key {} ({}): the slot history does not say where it lies", subject.element.row, part);
    return found;
  }
  found.numbers.push_back({"block", key.slot->block});
  found.numbers.push_back({"slot", key.slot->slot});
  found.text = fmt::format("key {} ({}) is read from {}", subject.element.row, part, slot_name(*key.slot));
  found.danger = true;
  if (subject.bad && subject.facts.spoilt_by_reading(subject.op.layer, subject.tensor, key)) {
    found.origin = true;
    found.text += ": its code is healthy, reading it is not";
  }
  found.key = key;
  return found;
}

}  // namespace nanscope
