/// Many requests in a step: who runs, on how many tokens, and who has to give up its blocks.
#include <fmt/format.h>

#include <algorithm>

#include "instrument/engine/session.h"
#include "instrument/engine/window_cache.h"

namespace nanscope {

Result<std::vector<RequestRow>> Session::run_batch(std::int64_t first, std::span<const RequestSpec> specs,
                                                   std::span<const Prompt> prompts) {
  std::vector<Sequence> all(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Sequence& sequence = all[i];
    sequence.row.id = first + static_cast<std::int64_t>(i);
    sequence.row.name = specs[i].name;
    if (emitter_.listening()) sequence.row.prompt = prompt_to_json(specs[i].parts);
    sequence.row.prompt_tokens = prompts[i].tokens;
    sequence.prompt = &prompts[i];
    sequence.keys = prompts[i].keys;
    sequence.tokens = prompts[i].tokens;
    sequence.max_tokens = specs[i].max_tokens;
    sequence.arrive = specs[i].arrive;
    sequence.fresh = specs[i].fresh;
    waiting_.push_back(&sequence);
  }
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Sequence* a, const Sequence* b) { return a->arrive < b->arrive; });
  for (; !waiting_.empty() || !running_.empty(); ++now_) {
    if (running_.empty()) now_ = std::max(now_, waiting_.front()->arrive);
    const std::vector<Part> parts = schedule(now_);
    if (parts.empty()) return fail("no request fits into the KV pool; raise kv.blocks");
    const Result<std::vector<std::int32_t>> tokens = step(parts, true);
    if (!tokens) return tl::unexpected(tokens.error());
    for (std::size_t i = 0; i < parts.size(); ++i) advance(parts[i], (*tokens)[i]);
    std::erase_if(running_, [](const Sequence* sequence) { return sequence->done; });
    if (!emitter_.ok()) return tl::unexpected(emitter_.status().error());
  }
  std::vector<RequestRow> rows;
  rows.reserve(all.size());
  for (Sequence& sequence : all) rows.push_back(std::move(sequence.row));
  return rows;
}

std::vector<Session::Part> Session::schedule(std::int64_t now) {
  std::vector<Part> parts;
  std::int64_t reserved = 0;
  const std::size_t ran = running_.size();
  schedule_running(parts, reserved);
  // Whoever lost its blocks in this step waits for the next one.
  if (running_.size() == ran) admit(now, parts, reserved);
  return parts;
}

/// Where blocks run out, the request that came last gives up its own.
void Session::schedule_running(std::vector<Part>& parts, std::int64_t& reserved) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Part part = next_part(*running_[i]);
    while (i < running_.size() && missing_blocks(part) > allocator_.free_blocks() - reserved) {
      preempt(*running_.back());
      running_.pop_back();
    }
    if (i == running_.size()) return;
    reserved += missing_blocks(part);
    parts.push_back(part);
  }
}

void Session::admit(std::int64_t now, std::vector<Part>& parts, std::int64_t& reserved) {
  const auto most = static_cast<std::size_t>(parts_.config.batch.requests);
  while (running_.size() < most && !waiting_.empty() && waiting_.front()->arrive <= now) {
    Sequence& sequence = *waiting_.front();
    begin(sequence);
    const Part part = next_part(sequence);
    if (missing_blocks(part) > allocator_.free_blocks() - reserved) {
      allocator_.give_back(sequence.blocks);
      sequence.blocks.clear();
      sequence.hashes.clear();
      return;
    }
    reserved += missing_blocks(part);
    parts.push_back(part);
    tell_begin(sequence);
    running_.push_back(&sequence);
    waiting_.erase(waiting_.begin());
  }
}

/// What is known of its tokens and was not computed, as far as a chunk goes.
Session::Part Session::next_part(Sequence& sequence) const {
  const std::int64_t chunk = parts_.config.batch.chunk;
  std::int64_t count = std::ssize(sequence.tokens) - sequence.computed;
  if (chunk > 0) count = std::min(count, chunk);
  const bool decodes = sequence.computed + 1 == std::ssize(sequence.tokens) && !sequence.row.output_tokens.empty();
  return {
      &sequence, decodes ? StepKind::decode : StepKind::prefill,
      std::span(sequence.tokens).subspan(static_cast<std::size_t>(sequence.computed), static_cast<std::size_t>(count)),
      sequence.computed};
}

std::int64_t Session::missing_blocks(const Part& part) const {
  const Sequence& sequence = *part.sequence;
  const std::int64_t most = table_blocks(sequence, part.first + std::ssize(part.tokens));
  std::int64_t missing = most - std::min(most, std::ssize(sequence.blocks));
  const std::int64_t behind = std::min(blocks_behind(parts_.config, part.first), std::ssize(sequence.blocks));
  for (std::int64_t i = 0; i < behind; ++i) missing -= sequence.blocks[static_cast<std::size_t>(i)] >= 0 ? 1 : 0;
  const bool state = !parts_.config.model.recurrent_layers.empty() && part.sequence->state_block < 0;
  return std::max<std::int64_t>(0, missing) + (state ? 1 : 0);
}

/// From the first token that is in no block of the prefix cache on.
void Session::begin(Sequence& sequence) {
  const std::int64_t cached_at_first = sequence.row.cached_tokens;
  sequence.computed = 0;
  sequence.tells_shared = true;
  if (sequence.preempted_at > 0 && parts_.config.batch.preempt == Preempt::stale) {
    sequence.computed = sequence.preempted_at;
    return;
  }
  if (caches_prefixes() && !sequence.fresh) {
    share_prefix(sequence);
    sequence.computed = sequence.row.cached_tokens;
  }
  if (sequence.begun) sequence.row.cached_tokens = cached_at_first;
}

void Session::tell_begin(Sequence& sequence) {
  if (sequence.begun) return;
  sequence.begun = true;
  emitter_.check(emitter_.probe().on_request_begin(sequence.row));
  tell_prompt(sequence);
}

void Session::preempt(Sequence& sequence) {
  sequence.preempted_at = sequence.computed;
  release(sequence);
  sequence.blocks.clear();
  sequence.hashes.clear();
  sequence.state_block = -1;
  waiting_.insert(waiting_.begin(), &sequence);
}

void Session::advance(const Part& part, std::int32_t token) {
  Sequence& sequence = *part.sequence;
  sequence.computed = part.first + std::ssize(part.tokens);
  if (sequence.computed < std::ssize(sequence.tokens)) return;
  if (token < 0) {
    sequence.row.output_text = "[refused: NaN in logits]";
    finish(sequence);
    return;
  }
  sequence.row.output_tokens.push_back(token);
  sequence.keys.push_back(static_cast<std::uint64_t>(token));
  sequence.tokens.push_back(token);
  sequence.answer += parts_.tokenizer->token_text(token);
  if (ends(token) || std::ssize(sequence.row.output_tokens) == sequence.max_tokens) finish(sequence);
}

void Session::finish(Sequence& sequence) {
  sequence.done = true;
  sequence.row.output_text = text_of(sequence.row.output_tokens) + sequence.row.output_text;
  release(sequence);
  emitter_.check(emitter_.probe().on_request_end(sequence.row));
}

}  // namespace nanscope
