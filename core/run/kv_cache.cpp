#include "core/run/kv_cache.h"

#include <algorithm>
#include <string>

namespace nanscope {

std::int64_t keys_of(const Tensor& scores) {
  return scores.heads > 0 ? scores.channels / scores.heads : scores.channels;
}

KvCache::KvCache(RunView& run) : run_(run), slots_(run.kv_history(), run.steps()) {}

std::int64_t KvCache::block_size(const Step& step, std::optional<std::int64_t> layer) {
  for (const Op& op : run_.content(step.id).ops) {
    if (op.layer != layer) continue;
    if (const auto* store = op.get<KvStoreAttributes>(); store != nullptr && store->block_size)
      return *store->block_size;
    if (const auto* read = op.get<KvReadAttributes>(); read != nullptr && read->block_size) return *read->block_size;
  }
  return 0;
}

std::optional<std::int64_t> KvCache::row_of(const Tensor& read, const Step& step, const Span& span,
                                            std::int64_t position) {
  const auto inside = [&](std::int64_t row) {
    return row >= 0 && row < read.tokens ? std::optional(row) : std::nullopt;
  };
  if (read.sequence >= 0) {
    const auto which = static_cast<std::size_t>(read.sequence);
    if (which >= step.spans.size() || step.spans[which].row != span.row) return std::nullopt;
    return inside(position - read.first_token);
  }
  switch (read.axis) {
    case Axis::rows: {
      const std::int64_t row = span.row + position - span.first_token;
      return span.has(row) ? inside(row) : std::nullopt;
    }
    case Axis::live: {
      std::int64_t before = 0;
      for (const Span& one : step.spans) {
        if (&one == &span || one.row == span.row) break;
        before += one.rows;
      }
      const std::int64_t at = position - span.first_token;
      return at >= 0 && at < span.rows ? inside(before + at) : std::nullopt;
    }
    case Axis::part:
    case Axis::keys: {
      if (step.batch <= 1) return inside(position - read.first_token);
      const std::int64_t frame = read.tokens / step.batch;
      const std::int64_t length = step.rows / step.batch;
      const std::int64_t sequence = span.row / length;
      // Left padding pushes a sequence to the end of its frame.
      const std::int64_t pad = std::max<std::int64_t>(0, frame - length) > 0 ? frame - span.context : span.row % length;
      return inside(sequence * frame + pad + position);
    }
    case Axis::slots: {
      const Op* store = run_.maker(read);
      const std::int64_t block = block_size(step, store != nullptr ? store->layer : std::nullopt);
      const auto slot = slots_.locate(span.request, position, step.id);
      return slot && block > 0 ? inside(slot->block * block + slot->slot) : std::nullopt;
    }
    case Axis::ends:
    case Axis::none:
      return std::nullopt;
  }
  return std::nullopt;
}

KeyRow KvCache::key_row(const Tensor& read, const Step& step, const Span& span, std::int64_t row,
                        std::optional<std::int64_t> layer) {
  KeyRow key;
  key.row = row;
  key.position = row;
  if (read.axis == Axis::slots) {
    const std::int64_t last = std::max(span.context, std::int64_t{0}) + 512;
    for (std::int64_t position = 0; position < last; ++position) {
      if (row_of(read, step, span, position) != row) continue;
      key.position = position;
      break;
    }
  } else if (read.axis == Axis::rows) {
    key.position = span.position(row);
  } else if (read.axis == Axis::keys && step.batch <= 1) {
    key.position = read.first_token + row;
  }
  key.in_context = key.position < span.context;
  key.fresh = key.position >= span.first_token && key.in_context;
  if (read.axis == Axis::rows || read.axis == Axis::live) {
    key.own = key.fresh;
    return key;
  }
  key.slot = slots_.locate(span.request, key.position, step.id);
  if (!key.slot) {
    key.own = key.fresh;
    return key;
  }
  key.given_back = slots_.given_back(span.request, key.position, step.id);
  const std::int64_t number = layer.value_or(-1);
  key.writer = slots_.last_writer(*key.slot, number, step.id, false);
  const KvRow* state = slots_.last_writer(*key.slot, number, step.id, true);
  if (state != key.writer) {
    // A recurrent state was in the block since. It filled only a part of it: what attention stored is
    // still there when that is what explains the row.
    const auto bad = [&](std::string_view target) {
      const auto stored = key.writer != nullptr ? stored_row(*key.writer, *key.slot, layer, target) : std::nullopt;
      if (!stored || !RunView::symptomatic(*stored->codes)) return false;
      const std::vector<Health>& rows = run_.rows(*stored->codes);
      return rows.empty() || rows[static_cast<std::size_t>(stored->row)].bad() > 0;
    };
    if (!bad("k") && !bad("v")) key.writer = state;
  }
  key.own = key.writer != nullptr && key.writer->action == KvAction::written && key.writer->request == span.request &&
            key.writer->writer != kRecurrentState && key.in_context;
  if (key.writer == nullptr) key.own = key.fresh;
  return key;
}

std::int64_t KvCache::end_in(const Tensor& read) {
  constexpr std::int64_t kMostPositions = std::int64_t{1} << 22;  // of a sequence in a pool
  return read.axis == Axis::slots ? kMostPositions + read.tokens : read.first_token + read.tokens;
}

std::vector<KeyRow> KvCache::key_rows(const Tensor& read, const Step& step, const Span& span, std::int64_t keys,
                                      std::optional<std::int64_t> layer) {
  std::vector<KeyRow> rows;
  const std::int64_t end = std::min(keys, end_in(read));
  for (std::int64_t position = 0; position < end; ++position) {
    const auto row = row_of(read, step, span, position);
    if (!row) continue;
    KeyRow key = read.axis == Axis::slots ? KeyRow{} : key_row(read, step, span, *row, layer);
    if (read.axis == Axis::slots) {
      key.row = *row;
      key.position = position;
      key.in_context = position < span.context;
      key.fresh = position >= span.first_token && key.in_context;
      key.slot = slots_.locate(span.request, position, step.id);
      key.writer = key.slot ? slots_.last_writer(*key.slot, layer.value_or(-1), step.id, false) : nullptr;
      key.own = key.writer != nullptr ? key.writer->request == span.request && key.in_context : key.fresh;
    }
    rows.push_back(key);
  }
  return rows;
}

std::optional<StoredRow> KvCache::stored_row(const KvRow& write, const PoolSlot& slot,
                                             std::optional<std::int64_t> layer, std::string_view target) {
  if (write.action != KvAction::written || write.writer == kRecurrentState) return std::nullopt;
  const Op* store = run_.find_op(write.step, layer, "kv_store");
  const Tensor* codes = store != nullptr ? run_.output(*store, std::string(target) + "_codes") : nullptr;
  // Under schemes K and V have formats of their own, and rows that wait to be quantized a third.
  const auto* how = store != nullptr ? store->get<KvStoreAttributes>() : nullptr;
  const bool own_formats = how != nullptr && how->scheme_k.has_value();
  if (codes == nullptr || (!own_formats && codes->format != write.format)) return std::nullopt;
  const std::int64_t position = write.first_token + slot.slot - write.slot_begin;
  const Step* step = run_.step(write.step);
  if (step == nullptr) return std::nullopt;
  for (const Span& span : step->spans) {
    const std::int64_t row = span.row + position - span.first_token;
    if (span.request == write.request && span.has(row) && row < codes->tokens) return StoredRow{codes, row};
  }
  return std::nullopt;
}

}  // namespace nanscope
