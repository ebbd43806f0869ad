#include <fmt/format.h>

#include "instrument/diagnosis/provenance/cache.h"
#include "instrument/diagnosis/provenance/keys.h"
#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {
namespace {

std::string slot_name(const PoolSlot& slot) { return fmt::format("block {} slot {}", slot.block, slot.slot); }

/// Whether NaN or Inf was made of codes that are neither, in a slot that the request wrote: by the scale, or by taking
/// them for another format.
bool spoilt_by_reading(const Subject& subject, const KeyRow& key) {
  if (!key.own || !key.slot || key.writer == nullptr || !subject.facts.row_bad(subject.tensor, key.row)) return false;
  const std::optional<StoredRow> stored =
      subject.facts.cache.stored_row(*key.writer, *key.slot, subject.op.layer, subject.tensor.role.substr(0, 1));
  return stored && !subject.facts.row_bad(*stored->codes, stored->row);
}

/// out = code x scale of a cache that was dumped, or of what this pass computed.
Explanation explain_dumped_read(const Subject& subject, const Tensor& source, const std::string& target) {
  std::optional<std::int64_t> row = row_in(subject.facts, subject.tensor, subject.element.row, source);
  const RowToken token = subject.facts.run.token_of(subject.tensor, subject.element.row);
  if (!row && token.span != nullptr)
    row = subject.facts.cache.row_of(source, subject.step, *token.span, token.position);
  if (!row && subject.tensor.tokens == source.tokens) row = subject.element.row;
  if (!row && is_gathered(subject.facts, subject.tensor)) {
    const auto at = gathered_at(subject.step, subject.tensor, subject.element.row);
    if (at) row = subject.facts.cache.row_of(source, subject.step, *at->span, at->position);
  }
  if (!row) return follow_unplaced(subject, {target, &source, {}});
  const std::int64_t channel = subject.element.channel;
  if (source.known && channel >= source.channels) return explain_by_inputs(subject);
  Explanation found = explain_read_back(subject, source, *row, channel,
                                        used_scale(subject, target + "_scale", {}, source, *row, channel));
  if (found.origin && !is_cache(source)) found.text += "; the cache in between was not dumped";
  return found;
}

}  // namespace

/// out = decode(code) * scale: whatever was last written into the slot, by whomever.
Explanation explain_kv_read(const Subject& subject) {
  const std::string target = subject.tensor.role.substr(0, 1);
  if (const auto source = operand(subject, {target + "_cache", target}))
    return explain_dumped_read(subject, *source->tensor, target);
  Explanation found;
  const Span* reader = reader_of(subject);
  if (reader == nullptr) return explain_by_inputs(subject);
  const std::int64_t row = subject.element.row;
  const KeyRow key = subject.facts.cache.key_row(subject.tensor, subject.step, *reader, row, subject.op.layer);
  const char* part = key.in_context ? "in the context" : "in the tail of the block, beyond the context";
  found.numbers.push_back({"key", row});
  found.numbers.push_back({"context", reader->context});
  if (!key.slot) {
    found.origin = subject.bad;
    found.text = fmt::format("key {} ({}): the slot history does not say where it lies", row, part);
    return found;
  }
  found.numbers.push_back({"block", key.slot->block});
  found.numbers.push_back({"slot", key.slot->slot});
  found.text = fmt::format("key {} ({}) is read from {}", row, part, slot_name(*key.slot));
  found.danger = true;
  if (subject.bad && spoilt_by_reading(subject, key)) {
    found.origin = true;
    found.text += ": its code is healthy, reading it is not";
  }
  found.key = key;
  found.reader = reader;
  return found;
}

}  // namespace nanscope
