#include "instrument/diagnosis/stale_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

constexpr std::int64_t kStateBytes = 4;  // f32

std::vector<const Op*> ops_of_kind(Facts& facts, StepId step, OpKind kind) {
  std::vector<const Op*> found;
  for (const Op& op : facts.run.content(step).ops) {
    if (op.kind == kind) found.push_back(&op);
  }
  return found;
}

/// Place of the attention layer's K or V among the pool's regions; nothing when the step has no such layer.
std::optional<std::int64_t> region_of(const std::vector<const Op*>& stores, std::optional<std::int64_t> layer,
                                      std::string_view target) {
  for (std::size_t rank = 0; rank < stores.size(); ++rank) {
    if (stores[rank]->layer == layer) return 2 * static_cast<std::int64_t>(rank) + (target == "v" ? 1 : 0);
  }
  return std::nullopt;
}

/// Reads the code at byte `offset` of the state; nothing when it does not lie inside.
std::optional<StaleBits> read_state(Facts& facts, const Op& recurrent, std::int64_t offset, Format format) {
  const Tensor* state = facts.run.output(recurrent, "out");
  if (state == nullptr || state->format != Format::f32 || state->tokens == 0) return std::nullopt;
  const auto width = static_cast<std::int64_t>(info(format).storage_bytes());
  if (offset < 0 || offset + width > state->channels * kStateBytes || width > kStateBytes) return std::nullopt;
  StaleBits found;
  found.state = state;
  found.row = state->tokens - 1;
  found.channel = offset / kStateBytes;
  found.byte = offset % kStateBytes;
  // A code that begins in one number and ends in the next is none of this one's.
  if (found.byte + width > kStateBytes) return std::nullopt;
  const Fact<TensorData> data = facts.run.read(*state, found.row, 1);
  if (!data) return std::nullopt;
  found.bits = data->code(found.channel);
  found.value = data->value(found.channel);
  found.format = format;
  const std::uint32_t mask = width == kStateBytes ? ~0U : (1U << (8 * width)) - 1;
  found.code = (found.bits >> (8 * found.byte)) & mask;
  return found;
}

}  // namespace

std::optional<StaleBits> stale_bits(Facts& facts, const Step& step, std::optional<std::int64_t> layer,
                                    std::string_view target, const KeyRow& key, std::int64_t channel) {
  if (key.writer == nullptr || key.writer->writer != kRecurrentState || !key.slot) return std::nullopt;
  const std::vector<const Op*> stores = ops_of_kind(facts, step.id, OpKind::kv_store);
  const std::vector<const Op*> states = ops_of_kind(facts, key.writer->step, OpKind::recurrent_scan);
  const std::optional<std::int64_t> region = region_of(stores, layer, target);
  const Op* store = facts.run.find_op(step.id, layer, "kv_store");
  const Tensor* codes = store != nullptr ? facts.run.output(*store, std::string(target) + "_codes") : nullptr;
  if (!region || codes == nullptr || channel >= codes->channels) return std::nullopt;
  constexpr std::int64_t kMostSlots = std::int64_t{1} << 20;
  if (key.slot->slot < 0 || key.slot->slot > kMostSlots) return std::nullopt;
  const auto code_bytes = static_cast<std::int64_t>(info(codes->format).storage_bytes());
  const std::int64_t at = (key.slot->slot * codes->channels + channel) * code_bytes;
  const auto regions = 2 * static_cast<std::int64_t>(stores.size());
  // Of the next state that lies in this region: in its block, from the first address on that is a multiple of 4.
  std::int64_t rest = 1;  // of where the block begins
  for (const std::int64_t factor : {key.slot->block, facts.cache.block_size(step, layer), codes->channels, code_bytes})
    rest = rest * (factor % kStateBytes) % kStateBytes;
  std::int64_t begin = (kStateBytes - rest) % kStateBytes;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (static_cast<std::int64_t>(rank) % regions != *region) continue;
    if (std::optional<StaleBits> found = read_state(facts, *states[rank], at - begin, codes->format)) return found;
    const Tensor* state = facts.run.output(*states[rank], "out");
    begin += state != nullptr ? state->channels * kStateBytes : 0;
  }
  return std::nullopt;
}

std::string text_of(const StaleBits& bits) {
  const float read = decode(bits.format, bits.code);
  return fmt::format("byte {} of f32 {:.9g} ({}) is read as {} {}{}", bits.byte, bits.value,
                     code_text(Format::f32, bits.bits), name(bits.format), code_text(bits.format, bits.code),
                     read != read ? ", a NaN" : "");
}

}  // namespace nanscope
