/// The blocks of a run's sequences: who takes, shares, overwrites and gives back which.
#include <fmt/format.h>

#include <algorithm>

#include "instrument/engine/session.h"
#include "instrument/engine/window_cache.h"

namespace nanscope {

/// A recurrent layer's state is in no block of the prefix, so a prefix alone cannot resume it; and which rows of a
/// block have codes differs from sequence to sequence where a scheme keeps some as they are. What a window has left
/// behind is no prefix.
bool Session::caches_prefixes() const {
  if (parts_.config.kv.window_cache != WindowCache::all) return false;
  return parts_.config.kv.prefix_cache && !keeps_rows_ && parts_.config.model.recurrent_layers.empty();
}

std::uint64_t Session::block_hash(const Sequence& sequence, std::size_t block, std::uint64_t before) const {
  const auto size = static_cast<std::size_t>(parts_.config.kv.block_size);
  return PrefixCache::chain(before, std::span(sequence.keys).subspan(block * size, size));
}

/// Takes over the leading full blocks that an earlier request computed. At least the last token is
/// computed anew: its logits are needed.
void Session::share_prefix(Sequence& sequence) {
  const std::int64_t block_size = parts_.config.kv.block_size;
  const auto tokens = static_cast<std::int64_t>(sequence.keys.size());
  const auto shareable = static_cast<std::size_t>((tokens - 1) / block_size);
  std::uint64_t hash = 0;
  while (sequence.blocks.size() < shareable) {
    hash = block_hash(sequence, sequence.blocks.size(), hash);
    const std::optional<std::int64_t> block = cache_.find(hash);
    if (!block) break;
    allocator_.share(*block);
    sequence.blocks.push_back(*block);
    sequence.hashes.push_back(hash);
  }
  sequence.row.cached_tokens = static_cast<std::int64_t>(sequence.blocks.size()) * block_size;
}

void Session::remember_full_blocks(Sequence& sequence, std::int64_t context) {
  const auto full = static_cast<std::size_t>(context / parts_.config.kv.block_size);
  while (sequence.hashes.size() < full) {
    const std::size_t block = sequence.hashes.size();
    sequence.hashes.push_back(block_hash(sequence, block, block == 0 ? 0 : sequence.hashes.back()));
    cache_.insert(sequence.hashes.back(), sequence.blocks[block]);
  }
}

/// Blocks that `tokens` of it take; a ring's, where it has one, counts once.
std::int64_t Session::table_blocks(const Sequence& sequence, std::int64_t tokens) const {
  const std::int64_t block_size = parts_.config.kv.block_size;
  if (parts_.config.kv.window_cache != WindowCache::ring) return (tokens + block_size - 1) / block_size;
  // Who is preempted has its answer so far computed again with the prompt.
  return most_blocks(parts_.config, std::ssize(sequence.row.prompt_tokens) + sequence.max_tokens, tokens);
}

Status Session::take_blocks(Sequence& sequence, const Span& span) {
  const std::int64_t block_size = parts_.config.kv.block_size;
  const bool states = !parts_.config.model.recurrent_layers.empty();
  give_back_behind(sequence, span.first_token);
  while (std::ssize(sequence.blocks) * block_size < span.context) {
    const std::int64_t index = std::ssize(sequence.blocks);
    const std::int64_t around = table_blocks(sequence, (index + 1) * block_size);
    if (index >= around) {
      const std::int64_t block = sequence.blocks[static_cast<std::size_t>(index - around)];
      tell_taken(sequence, block, index * block_size, writer(sequence), KvAction::allocated);
      sequence.blocks.push_back(block);
      continue;
    }
    const Result<std::int64_t> block = take_block(sequence, index * block_size, writer(sequence));
    if (!block) return tl::unexpected(block.error());
    sequence.blocks.push_back(*block);
  }
  if (states && sequence.state_block < 0) {
    const Result<std::int64_t> block = take_block(sequence, 0, "recurrent_state");
    if (!block) return tl::unexpected(block.error());
    sequence.state_block = *block;
  }
  return {};
}

Result<std::int64_t> Session::take_block(const Sequence& sequence, std::int64_t first_token, std::string_view writer) {
  const std::optional<std::int64_t> block = allocator_.take();
  if (!block) {
    return fail(fmt::format("the request needs more KV blocks than kv.blocks={}; raise it, or shorten the prompt",
                            parts_.config.kv.blocks));
  }
  cache_.forget(*block);
  tell_taken(sequence, *block, first_token, writer, KvAction::allocated);
  if (parts_.config.kv.scrub) {
    for (RankState& rank : ranks_) {
      if (Status status = rank.pool.scrub(*block); !status) return tl::unexpected(status.error());
    }
    tell_taken(sequence, *block, first_token, writer, KvAction::scrubbed);
  }
  return *block;
}

void Session::give_back_behind(Sequence& sequence, std::int64_t first) {
  const std::int64_t behind = std::min(blocks_behind(parts_.config, first), std::ssize(sequence.blocks));
  for (std::int64_t i = 0; i < behind; ++i) {
    std::int64_t& block = sequence.blocks[static_cast<std::size_t>(i)];
    if (block < 0) continue;
    tell_taken(sequence, block, i * parts_.config.kv.block_size, writer(sequence), KvAction::freed);
    allocator_.give_back(std::span(&block, 1));
    block = -1;
  }
}

std::vector<std::pair<std::int64_t, std::int64_t>> Session::held_blocks(const Sequence& sequence) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> held;
  for (std::size_t i = 0; i < sequence.blocks.size(); ++i) {
    const std::int64_t block = sequence.blocks[i];
    const std::int64_t first = static_cast<std::int64_t>(i) * parts_.config.kv.block_size;
    const auto known = std::find_if(held.begin(), held.end(), [&](const auto& one) { return one.first == block; });
    if (known != held.end()) {
      known->second = first;
    } else if (block >= 0) {
      held.emplace_back(block, first);
    }
  }
  return held;
}

void Session::release(Sequence& sequence) {
  std::vector<std::pair<std::int64_t, std::int64_t>> held = held_blocks(sequence);
  if (sequence.state_block >= 0) {
    held.emplace_back(sequence.state_block, std::ssize(sequence.blocks) * parts_.config.kv.block_size);
  }
  std::vector<std::int64_t> blocks;
  for (const auto& [block, first_token] : held) {
    tell_taken(sequence, block, first_token, writer(sequence), KvAction::freed);
    blocks.push_back(block);
  }
  allocator_.give_back(blocks);
}

/// What became of a whole block of the sequence.
void Session::tell_taken(const Sequence& sequence, std::int64_t block, std::int64_t first_token,
                         std::string_view writer, KvAction action) {
  KvRow row;
  row.request = sequence.row.id;
  row.block = block;
  row.slot_end = parts_.config.kv.block_size;
  row.first_token = first_token;
  row.writer = writer;
  row.format = slot_format_;
  row.action = action;
  tell_kv(row);
}

void Session::tell_written(const Sequence& sequence, const Span& span, std::int64_t state_block) {
  if (!emitter_.listening() || !sequence.stores) return;
  const std::int64_t block_size = parts_.config.kv.block_size;
  for (std::int64_t token = span.first_token; token < span.context;) {
    const std::int64_t block = token / block_size;
    const std::int64_t end = std::min(span.context, (block + 1) * block_size);
    tell_kv({0, span.request, -1, sequence.blocks[static_cast<std::size_t>(block)], token % block_size,
             end - block * block_size, token, KvAction::written, std::string(writer(sequence)), slot_format_});
    token = end;
  }
  if (state_block < 0) return;
  for (std::int64_t layer = 0; layer < parts_.config.model.layers; ++layer) {
    if (!is_recurrent(parts_.config.model, layer)) continue;
    tell_kv({0, span.request, layer, state_block, 0, block_size, span.first_token, KvAction::written, "recurrent_state",
             Format::f32});
  }
}

/// The request's blocks, filled up with the null block to the width of kv.table_blocks.
std::vector<std::int32_t> Session::block_table(const Sequence& sequence) {
  std::vector<std::int32_t> table(sequence.blocks.begin(), sequence.blocks.end());
  KvRow row;
  row.request = sequence.row.id;
  row.block = kNullBlock;
  row.slot_end = parts_.config.kv.block_size;
  row.writer = "null_block";
  row.format = slot_format_;
  row.action = KvAction::allocated;
  while (static_cast<std::int64_t>(table.size()) < parts_.config.kv.table_blocks) {
    row.first_token = static_cast<std::int64_t>(table.size()) * parts_.config.kv.block_size;
    table.push_back(static_cast<std::int32_t>(kNullBlock));
    if (sequence.steps == 1) tell_kv(row);
  }
  return table;
}

/// The block of the recurrent states in a step, for reading and writing. Index -1 is the last one, as in Python.
std::int64_t Session::state_block(const Sequence& sequence, StepKind kind) const {
  const KvConfig& kv = parts_.config.kv;
  const bool before = kv.state_index == StateIndex::minus_one && kind == StepKind::decode;
  if (!before || sequence.state_block < 0) return sequence.state_block;
  return (sequence.state_block + kv.blocks - 1) % kv.blocks;
}

/// The state blocks are the first column of the table of all requests' blocks, a row a request, whose rows lie as far
/// apart as it is wide. A kernel that does not know reads them one behind the other.
void Session::read_states_with_unit_stride(std::span<SpanInput> spans) const {
  std::size_t width = 1;
  for (const SpanInput& input : spans) width = std::max(width, input.blocks.size() + 1);
  std::vector<std::int64_t> table;
  for (const SpanInput& input : spans) {
    table.push_back(input.state_block);
    table.insert(table.end(), input.blocks.begin(), input.blocks.end());
    table.resize((table.size() + width - 1) / width * width, 0);
  }
  for (std::size_t i = 0; i < spans.size(); ++i) spans[i].state_block = table[i];
}

}  // namespace nanscope
