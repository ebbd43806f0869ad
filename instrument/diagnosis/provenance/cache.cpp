#include "instrument/diagnosis/provenance/cache.h"

#include <algorithm>
#include <string>

namespace nanscope {
namespace {

/// The same op of another pass: of its layer, under its name.
const Op* same_op(const Subject& subject, StepId step) {
  return subject.facts.run.find_op(step, subject.op.layer, subject.op.name);
}

const Tensor* same_cache(const Subject& subject, StepId step) {
  const Op* store = same_op(subject, step);
  const Tensor* cache = store != nullptr ? subject.facts.run.output(*store, subject.tensor.role) : nullptr;
  return cache != nullptr && cache->known && cache->channels == subject.tensor.channels ? cache : nullptr;
}

/// Of the same pool: ranks have one each, and so have runs that were dumped side by side.
bool same_pool(const Subject& subject, const Step& step) {
  return step.rank == subject.step.rank && step.run == subject.step.run;
}

const KvRow* last_writer(const Subject& subject, const PoolSlot& slot) {
  const KvRow* found = nullptr;
  for (const KvRow& row : subject.facts.run.kv_history()) {
    if (row.step > subject.step.id) break;
    const bool writes = row.action == KvAction::written || row.action == KvAction::scrubbed;
    const bool there = row.block == slot.block && slot.slot >= row.slot_begin && slot.slot < row.slot_end;
    if (!writes || !there || (row.layer >= 0 && row.layer != subject.op.layer)) continue;
    const Step* step = subject.facts.run.step(row.step);
    if (step != nullptr && same_pool(subject, *step)) found = &row;
  }
  return found;
}

/// What a pass computed of its rows for the cache.
const Tensor* stored_in(const Subject& subject, StepId step, const std::string& target) {
  RunView& run = subject.facts.run;
  if (const Op* store = same_op(subject, step)) return run.input(*store, target);
  for (const char* name : {"_rope", "_proj"}) {
    if (const Op* op = run.find_op(step, subject.op.layer, target + name)) return run.result(*op);
  }
  return nullptr;
}

/// The position of a sequence in what another of its passes stored, or in the cache that it left.
std::optional<Element> in_pass(const Subject& subject, const Step& step, std::int64_t request, std::int64_t position) {
  const std::string target = subject.tensor.role.substr(0, 1);
  for (const Span& span : step.spans) {
    if (span.request != request || position < span.first_token || position >= span.first_token + span.rows) continue;
    const Tensor* cache = same_cache(subject, step.id);
    const Tensor* stored = stored_in(subject, step.id, target);
    for (const Tensor* one : {cache, stored}) {
      const auto row = one != nullptr ? subject.facts.cache.row_of(*one, step, span, position) : std::nullopt;
      if (row && (!one->known || subject.element.channel < one->channels))
        return Element{one->id, *row, subject.element.channel};
    }
  }
  return std::nullopt;
}

/// The same of the last pass before this one that had the position.
std::optional<Element> in_earlier_pass(const Subject& subject, std::int64_t request, std::int64_t position) {
  const std::span<const Step> steps = subject.facts.run.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->id >= subject.step.id || !same_pool(subject, *step)) continue;
    if (const auto found = in_pass(subject, *step, request, position)) return found;
  }
  return std::nullopt;
}

Written of_slot(const Subject& subject, const Tensor& stored) {
  Written out;
  const std::int64_t block = subject.facts.cache.block_size(subject.step, subject.op.layer);
  if (block <= 0) return out;
  KeyRow key;
  key.row = subject.element.row;
  key.slot = PoolSlot{subject.element.row / block, subject.element.row % block};
  const auto holder = holder_of(subject.facts, subject.step, subject.op.layer, subject.element.row);
  if (holder) out.reader = holder->span;
  key.writer = last_writer(subject, *key.slot);
  if (key.writer != nullptr && key.writer->step == subject.step.id) {
    const std::int64_t position = key.writer->first_token + key.slot->slot - key.writer->slot_begin;
    for (const Span& span : subject.step.spans) {
      if (span.request == key.writer->request) out.row = subject.facts.run.row_at(stored, span, position);
    }
  }
  const bool earlier = holder && holder->position < holder->span->first_token;
  if (key.writer == nullptr && earlier) out.before = in_earlier_pass(subject, holder->span->request, holder->position);
  out.key = key;
  return out;
}

Written of_position(const Subject& subject, const Tensor& stored) {
  Written out;
  RunView& run = subject.facts.run;
  const RowToken token = run.token_of(subject.tensor, subject.element.row);
  if (token.span == nullptr) return out;
  out.reader = token.span;
  out.row = run.row_at(stored, *token.span, token.position);
  if (!out.row) out.before = in_earlier_pass(subject, token.span->request, token.position);
  return out;
}

}  // namespace

bool is_cache(const Tensor& tensor) { return tensor.axis == Axis::slots || tensor.axis == Axis::keys; }

std::optional<Holder> holder_of(Facts& facts, const Step& step, std::optional<std::int64_t> layer, std::int64_t row) {
  const std::int64_t block = facts.cache.block_size(step, layer);
  if (block <= 0 || row < 0) return std::nullopt;
  const PoolSlot slot{row / block, row % block};
  for (const KvRow& one : facts.run.kv_history()) {
    if (one.step != step.id || one.block != slot.block) continue;
    if (slot.slot < one.slot_begin || slot.slot >= one.slot_end) continue;
    for (const Span& span : step.spans) {
      if (span.request == one.request) return Holder{&span, one.first_token + slot.slot - one.slot_begin};
    }
  }
  return std::nullopt;
}

Written written_by(const Subject& subject, const Tensor& stored) {
  return subject.tensor.axis == Axis::slots ? of_slot(subject, stored) : of_position(subject, stored);
}

std::optional<Element> stored_elsewhere(const Subject& subject, const KvRow& write, const PoolSlot& slot) {
  if (write.action != KvAction::written || write.step >= subject.step.id) return std::nullopt;
  const Tensor* cache = same_cache(subject, write.step);
  if (cache != nullptr && cache->axis == Axis::slots && cache->tokens == subject.tensor.tokens)
    return Element{cache->id, subject.element.row, subject.element.channel};
  const Step* step = subject.facts.run.step(write.step);
  const std::int64_t position = write.first_token + slot.slot - write.slot_begin;
  return step != nullptr ? in_pass(subject, *step, write.request, position) : std::nullopt;
}

const Tensor* bad_before(const Subject& subject) {
  for (const Step& step : subject.facts.run.steps()) {
    if (step.id >= subject.step.id) break;
    if (!same_pool(subject, step)) continue;
    const Tensor* cache = same_cache(subject, step.id);
    if (cache == nullptr || cache->axis != Axis::slots || cache->tokens != subject.tensor.tokens) continue;
    if (bad_channel(subject.facts, *cache, subject.element.row, subject.element.channel, 1)) return cache;
  }
  return nullptr;
}

}  // namespace nanscope
