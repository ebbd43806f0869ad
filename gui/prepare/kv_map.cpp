#include "gui/prepare/kv_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/run/ranks.h"
namespace nanscope::gui {
namespace {

// More is a damaged recording, or beyond what a map can show.
constexpr std::int64_t kMostSlotsOfABlock = 1024;
constexpr std::size_t kMostSlots = std::size_t{1} << 18;

/// What a write put into its first slot, for one layer and k or v; the next slots are the next rows.
struct Stored {
  const Op* op = nullptr;
  const Tensor* codes = nullptr;
  std::int64_t row = 0;
};

std::string layer_text(const Op& op) { return op.layer ? fmt::format("layer {}", *op.layer) : op.name; }

std::string requests_text(const std::vector<std::int64_t>& requests) {
  return fmt::format("request{} {}", requests.size() == 1 ? "" : "s", fmt::join(requests, ", "));
}

class KvMapMaker {
 public:
  KvMapMaker(Facts& facts, const Step& step, const std::stop_token& stop, const ClippedRows* clipped)
      : facts_(facts), step_(step), stop_(stop), clipped_(clipped) {}

  Result<KvMap> make() {
    map_.when = request_text(step_);
    find_going_on();
    if (Status status = find_blocks(); !status) return tl::unexpected(status.error());
    for (KvBlock& block : map_.blocks) {
      if (stop_.stop_requested()) return fail("stopped");
      hold(block);
      for (std::size_t i = 0; i < block.slots.size(); ++i) fill(block, i);
    }
    mark_reads();
    count();
    if (Status status = facts_.run.status(); !status) return tl::unexpected(status.error());
    return std::move(map_);
  }

 private:
  /// Blocks as the whole run knows them, so that the map keeps its shape from step to step.
  Status find_blocks() {
    std::int64_t slots = 0;
    std::set<std::int64_t> blocks;
    for (const KvRow& row : facts_.run.kv_history()) {
      if (rank_of(facts_.run, row.step) != step_.rank) continue;
      blocks.insert(row.block);
      slots = std::max(slots, row.slot_end);
      rows_[row.block].push_back(&row);
    }
    if (slots > kMostSlotsOfABlock ||
        blocks.size() * static_cast<std::size_t>(std::max<std::int64_t>(slots, 0)) > kMostSlots) {
      return fail(fmt::format("{} blocks of {} slots are more than can be shown", blocks.size(), slots));
    }
    for (const std::int64_t id : blocks) {
      KvBlock block;
      block.id = id;
      block.slots.resize(static_cast<std::size_t>(slots));
      index_.emplace(id, map_.blocks.size());
      map_.blocks.push_back(std::move(block));
    }
    return {};
  }

  /// A request gives its blocks back after its last step.
  bool is_past(const KvRow& row) const {
    const bool own = std::any_of(step_.spans.begin(), step_.spans.end(),
                                 [&](const Span& span) { return span.request == row.request; });
    return row.step < step_.id || (row.step == step_.id && !(row.action == KvAction::freed && own));
  }

  bool dumped() const { return facts_.run.info().device == kDumpDevice; }

  /// A dump does not say when blocks were given back: a request has none behind the last step that was dumped of it.
  bool is_over(std::int64_t request) const { return dumped() && !going_on_.contains(request); }
  void find_going_on() {
    for (const Step& step : facts_.run.steps()) {
      if (step.id < step_.id) continue;
      for (const Span& span : step.spans) going_on_.insert(span.request);
    }
  }

  void hold(KvBlock& block) const {
    std::vector<std::int64_t>& holders = block.holders;
    std::optional<std::int64_t> last;
    bool shared = false;
    for (const KvRow* row : rows_.at(block.id)) {
      if (!is_past(*row)) continue;
      const bool takes = row->action == KvAction::allocated || row->action == KvAction::shared;
      if (takes && std::find(holders.begin(), holders.end(), row->request) == holders.end()) {
        holders.push_back(row->request);
      }
      if (takes) shared = row->action == KvAction::shared;
      if (row->action == KvAction::freed) std::erase(holders, row->request);
      last = row->request;
    }
    std::erase_if(holders, [this](std::int64_t holder) { return is_over(holder); });
    if (!last) {
      block.words = "not used yet";
    } else if (holders.empty() && dumped()) {
      block.words = fmt::format("last held by {}, as far as was dumped", requests_text({*last}));
    } else if (holders.empty()) {
      block.words = fmt::format("free, last held by {}", requests_text({*last}));
    } else {
      block.words = "held by " + requests_text(holders) + (shared ? ", which found its prefix here" : "");
    }
  }

  /// The entry that shares the slot with a holder of the block.
  const KvRow* share_of(const KvBlock& block, std::int64_t slot) {
    for (const std::int64_t holder : block.holders) {
      const KvRow* row = facts_.cache.slots().shared(holder, block.id, step_.id);
      if (row != nullptr && slot >= row->slot_begin && slot < row->slot_end) return row;
    }
    return nullptr;
  }

  void fill(KvBlock& block, std::size_t index) {
    KvSlot& slot = block.slots[index];
    const PoolSlot at{block.id, static_cast<std::int64_t>(index)};
    const KvRow* write = facts_.cache.slots().last_writer(at, -1, step_.id, true);
    if (write == nullptr) {
      slot.words.emplace_back(dumped() ? "never written, as far as was dumped" : "never written");
      look_at_pools(slot, at, false);
      return;
    }
    slot.request = write->request;
    slot.token = write->first_token + at.slot - write->slot_begin;
    slot.foreign = write->writer == kRecurrentState;
    const bool held = std::find(block.holders.begin(), block.holders.end(), write->request) != block.holders.end();
    const KvRow* share = held ? nullptr : share_of(block, at.slot);
    slot.state = held ? SlotState::live : share != nullptr ? SlotState::shared : SlotState::stale;
    if (write->action == KvAction::scrubbed) {
      slot.state = SlotState::scrubbed;
      slot.words.push_back("scrubbed during " + step_text(*write));
      return;
    }
    slot.words.push_back(slot.foreign ? fmt::format("state of a recurrent layer, written by {} as {}",
                                                    step_text(*write), name(write->format))
                                      : fmt::format("token {} of {}, written as {} by {}", slot.token,
                                                    step_text(*write), name(write->format), write->writer));
    look(slot, *write, at.slot);
    look_at_pools(slot, at, slot.state != SlotState::stale);
    if (share != nullptr) {
      slot.words.push_back(fmt::format("shared with request {}, whose prompt begins alike", share->request));
    }
    if (slot.state == SlotState::stale) {
      const std::string now = block.holders.empty() ? "" : ", and is " + block.words;
      slot.words.push_back(
          dumped() ? fmt::format("left behind: its block was of request {}, of which no later step was dumped{}",
                                 slot.request, now)
                   : fmt::format("left behind: its block was given back, not scrubbed{}", now));
    }
  }

  std::string step_text(std::int64_t id) {
    const Step* step = facts_.run.step(id);
    return step == nullptr ? fmt::format("step {}", id) : request_text(*step);
  }
  /// Of what one request did in a step.
  std::string step_text(const KvRow& row) {
    const Span* span = span_of(row);
    return span != nullptr ? request_text(*span) : step_text(row.step);
  }
  const Span* span_of(const KvRow& row) {
    const Step* step = facts_.run.step(row.step);
    if (step == nullptr) return nullptr;
    const auto at = std::find_if(step->spans.begin(), step->spans.end(),
                                 [&](const Span& span) { return span.request == row.request; });
    return at == step->spans.end() ? nullptr : &*at;
  }

  const std::vector<Stored>& stored_by(const KvRow& write) {
    const auto [at, added] = stored_.try_emplace(&write);
    if (!added) return at->second;
    for (const Op& op : facts_.run.content(write.step).ops) {
      if (op.kind != OpKind::kv_store || (write.layer >= 0 && op.layer != write.layer)) continue;
      for (const char* target : {"k", "v"}) {
        const auto row = facts_.cache.stored_row(write, {write.block, write.slot_begin}, op.layer, target);
        if (row) {
          at->second.push_back({&op, row->codes, row->row});
          continue;
        }
        const Tensor* pool = facts_.run.output(op, std::string(target) + "_cache");
        const Step* step = facts_.run.step(write.step);
        const std::int64_t block = step != nullptr ? facts_.cache.block_size(*step, op.layer) : 0;
        if (pool == nullptr || !pool->known || pool->axis != Axis::slots || block <= write.slot_begin) continue;
        at->second.push_back({&op, pool, write.block * block + write.slot_begin});
      }
    }
    return at->second;
  }

  /// What was stored, in the layer where it is worst.
  void look(KvSlot& slot, const KvRow& write, std::int64_t at) {
    std::vector<std::string> bad;
    for (const Stored& stored : stored_by(write)) {
      const Cell health = health_of(*stored.codes, stored.row + at - write.slot_begin);
      if (health == kAbsent) continue;
      if (health >= kClipped) bad.push_back(bad_text(health, *stored.op, *stored.codes));
      if (slot.target && health <= slot.health) continue;
      slot.health = std::max(slot.health, health);
      const bool pool = stored.codes->axis == Axis::slots;
      slot.target = place_of(write, *stored.op, *stored.codes, pool ? stored.row + at - write.slot_begin : slot.token);
    }
    if (!bad.empty()) slot.words.push_back(fmt::format("{}", fmt::join(bad, ", ")));
  }

  static std::string bad_text(Cell health, const Op& op, const Tensor& codes) {
    return fmt::format("{} in {} {}", cell_name(health), layer_text(op), codes.role.substr(0, 1));
  }

  Cell health_of(const Tensor& codes, std::int64_t row) {
    if (row < 0 || row >= codes.tokens || !codes.known) return kAbsent;
    const std::vector<Health>& rows = facts_.run.rows(codes);
    const bool detailed = static_cast<std::size_t>(row) < rows.size();
    const Cell cell = cell_of(detailed ? rows[static_cast<std::size_t>(row)] : codes.health, 0);
    return is_clipped(codes.id, row) ? std::max(cell, kClipped) : cell;
  }

  bool is_clipped(TensorId codes, std::int64_t row) const {
    if (clipped_ == nullptr) return false;
    const auto rows = clipped_->find(codes);
    return rows != clipped_->end() && std::binary_search(rows->second.begin(), rows->second.end(), row);
  }

  Selection place_of(const KvRow& write, const Op& op, const Tensor& codes, std::int64_t token) {
    Selection target;
    if (const Span* span = span_of(write)) {
      target.place.request = span->request;
      target.place.step = span->index;
    }
    if (const Step* step = facts_.run.step(write.step)) target.place.rank = step->rank;
    target.place.layer = op.layer.value_or(-1);
    target.place.op = op.name;
    target.place.role = codes.role;
    target.place.token = token;
    return target;
  }

  /// The pools as this step dumped them. What lies in slots that nobody wrote, or that were given back, harms nobody
  /// while it is not read.
  void look_at_pools(KvSlot& slot, const PoolSlot& at, bool somebodys) {
    std::vector<std::string> bad;
    for (const auto& [op, pool, block] : pools()) {
      const std::int64_t row = at.block * block + at.slot;
      const Cell health = block > at.slot ? health_of(*pool, row) : kAbsent;
      if (health == kAbsent) continue;
      if (health >= kClipped) bad.push_back(bad_text(health, *op, *pool));
      if (!somebodys || (slot.target && health <= slot.health)) continue;
      slot.health = std::max(slot.health, health);
      Selection target;
      target.place = place_of_step(*op, *pool);
      target.place.token = row;
      slot.target = std::move(target);
    }
    if (!bad.empty()) slot.words.push_back("holds " + fmt::format("{}", fmt::join(bad, ", ")));
  }

  Place place_of_step(const Op& op, const Tensor& tensor) const {
    Place place;
    if (!step_.spans.empty()) {
      place.request = step_.request();
      place.step = step_.index();
    }
    place.rank = step_.rank;
    place.layer = op.layer.value_or(-1);
    place.op = op.name;
    place.role = tensor.role;
    return place;
  }

  struct Pool {
    const Op* op = nullptr;
    const Tensor* tensor = nullptr;
    std::int64_t block = 0;  ///< slots of one
  };
  const std::vector<Pool>& pools() {
    if (pools_) return *pools_;
    pools_.emplace();
    for (const Op& op : facts_.run.content(step_.id).ops) {
      if (op.kind != OpKind::kv_store) continue;
      for (const TensorId id : op.outputs) {
        const Tensor* pool = facts_.run.tensor(id);
        if (pool == nullptr || !pool->known || pool->axis != Axis::slots) continue;
        pools_->push_back({&op, pool, facts_.cache.block_size(step_, op.layer)});
      }
    }
    return *pools_;
  }

  /// Which slots the step reads, and what it finds where nobody stored keys and values.
  void mark_reads() {
    bool gathered = false;
    for (const Op& op : facts_.run.content(step_.id).ops) {
      if (op.kind != OpKind::kv_read) continue;
      for (const TensorId id : op.outputs) {
        const Tensor* keys = facts_.run.tensor(id);
        if (keys == nullptr || !keys->known) continue;
        gathered = true;
        for (const Span& span : step_.spans) read_keys(op, *keys, span);
      }
    }
    if (gathered) return;
    // What attention gathered is not there: it reads what the block tables give it.
    for (const Span& span : step_.spans) {
      const std::int64_t keys = std::min<std::int64_t>(std::max(span.context, keys_gone_over()), kMostSlots);
      for (std::int64_t position = 0; position < keys; ++position) {
        KvSlot* slot = slot_at(span, position);
        if (slot == nullptr) continue;
        if (slot->state == SlotState::never_written && dumped()) take_unknown(*slot, span, position);
        note_read(*slot, span, position);
      }
    }
  }

  /// Keys that attention goes over for the one sequence of a step: beyond its context, those of its last block.
  std::int64_t keys_gone_over() {
    std::int64_t most = 0;
    if (step_.spans.size() != 1) return most;
    for (const Op& op : facts_.run.content(step_.id).ops) {
      if (op.kind != OpKind::attention_scores && op.kind != OpKind::softmax) continue;
      const Tensor* scores = facts_.run.result(op);
      if (scores != nullptr && scores->known && scores->heads > 0) most = std::max(most, keys_of(*scores));
    }
    return most;
  }

  /// What is read although no write of it was dumped: a prefix that both have, or what somebody left behind.
  void take_unknown(KvSlot& slot, const Span& span, std::int64_t position) {
    const std::optional<PoolSlot>& at = places_.at({span.request, position});
    slot.words.resize(1);
    look_at_pools(slot, *at, true);
    const bool prefix = position < span.context;
    if (!prefix && slot.health < kInf) return;
    slot.unknown = true;
    slot.state = prefix ? SlotState::shared : SlotState::stale;
    slot.request = span.request;
    slot.token = position;
    slot.words.front() = "who wrote it was not dumped";
  }

  KvSlot* slot_at(const Span& span, std::int64_t position) {
    const auto [at, added] = places_.try_emplace({span.request, position});
    if (added) at->second = facts_.cache.slots().locate(span.request, position, step_.id);
    return find(at->second);
  }

  static void note_read(KvSlot& slot, const Span& span, std::int64_t position) {
    if (!slot.read) {
      slot.words.push_back(position < span.context
                               ? fmt::format("read by {} as key {}", request_text(span), position)
                               : fmt::format("read by {}, although it is beyond its context", request_text(span)));
    }
    slot.read = true;
  }

  void read_keys(const Op& op, const Tensor& keys, const Span& span) {
    const std::vector<Health>& rows = facts_.run.rows(keys);
    for (std::int64_t position = 0; position < std::min<std::int64_t>(keys.tokens, kMostSlots); ++position) {
      KvSlot* slot = slot_at(span, position);
      const auto row = slot != nullptr ? facts_.cache.row_of(keys, step_, span, position) : std::nullopt;
      if (!row) continue;
      note_read(*slot, span, position);
      // Who stored what is read is a guess where a dump tells no blocks: what was gathered is there to be seen.
      const bool guessed = slot->foreign || (dumped() && slot->health < kInf);
      if (!guessed || static_cast<std::size_t>(*row) >= rows.size()) continue;
      note_foreign(*slot, op, keys, rows[static_cast<std::size_t>(*row)], span, position);
    }
  }

  void note_foreign(KvSlot& slot, const Op& op, const Tensor& keys, const Health& health, const Span& span,
                    std::int64_t position) {
    const Cell found = cell_of(health, 0);
    if (found <= slot.health || (!slot.foreign && found < kInf)) return;
    slot.health = found;
    if (found >= kInf) slot.words.push_back(fmt::format("read as {} in {}", cell_name(found), layer_text(op)));
    Selection target;
    target.place = place_of_step(op, keys);
    target.place.request = span.request;
    target.place.step = span.index;
    target.place.token = position;
    slot.target = std::move(target);
  }

  KvSlot* find(const std::optional<PoolSlot>& slot) {
    if (!slot) return nullptr;
    const auto block = index_.find(slot->block);
    if (block == index_.end()) return nullptr;
    std::vector<KvSlot>& slots = map_.blocks[block->second].slots;
    const auto at = static_cast<std::size_t>(slot->slot);
    return at < slots.size() ? &slots[at] : nullptr;
  }

  void count() {
    for (const KvBlock& block : map_.blocks) {
      for (const KvSlot& slot : block.slots) {
        ++map_.slots;
        map_.written += slot.state == SlotState::never_written ? 0 : 1;
        map_.bad += slot.health >= kInf ? 1 : 0;
        map_.stale += slot.state == SlotState::stale ? 1 : 0;
      }
    }
  }

  Facts& facts_;
  Step step_;
  const std::stop_token& stop_;
  const ClippedRows* clipped_;
  KvMap map_;
  std::unordered_map<std::int64_t, std::vector<const KvRow*>> rows_;
  std::unordered_map<std::int64_t, std::size_t> index_;
  std::unordered_map<const KvRow*, std::vector<Stored>> stored_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::optional<PoolSlot>> places_;  ///< by request and position
  std::optional<std::vector<Pool>> pools_;
  std::set<std::int64_t> going_on_;  ///< requests that have a step from this one on
};

}  // namespace

Result<KvMap> make_kv_map(Facts& facts, const Step& step, const std::stop_token& stop, const ClippedRows* clipped) {
  return KvMapMaker(facts, step, stop, clipped).make();
}

}  // namespace nanscope::gui
