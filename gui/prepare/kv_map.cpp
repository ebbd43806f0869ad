#include "gui/prepare/kv_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace nanscope::gui {
namespace {

// More is a damaged recording, or beyond what a map can show.
constexpr std::int64_t kMostSlotsOfABlock = 1024;
constexpr std::size_t kMostSlots = std::size_t{1} << 18;

/// What a write put into its first slot, for one layer and k or v; the next slots are the next rows.
struct Stored {
  std::int64_t layer = 0;
  std::string op;
  StoredRow first;
};

std::string requests_text(const std::vector<std::int64_t>& requests) {
  return fmt::format("request{} {}", requests.size() == 1 ? "" : "s", fmt::join(requests, ", "));
}

class KvMapMaker {
 public:
  KvMapMaker(Facts& facts, const StepRow& step, const std::stop_token& stop)
      : facts_(facts), step_(step), stop_(stop) {}

  Result<KvMap> make() {
    map_.when = request_text(step_);
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
    return row.step < step_.id ||
           (row.step == step_.id && !(row.action == KvAction::freed && row.request == step_.request));
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
    if (!last) {
      block.words = "not used yet";
    } else if (holders.empty()) {
      block.words = fmt::format("free, last held by {}", requests_text({*last}));
    } else {
      block.words = "held by " + requests_text(holders) + (shared ? ", which found its prefix here" : "");
    }
  }

  /// The entry that shares the slot with a holder of the block.
  const KvRow* share_of(const KvBlock& block, std::int64_t slot) {
    for (const std::int64_t holder : block.holders) {
      const KvRow* row = facts_.slots().shared(holder, block.id, step_.id);
      if (row != nullptr && slot >= row->slot_begin && slot < row->slot_end) return row;
    }
    return nullptr;
  }

  void fill(KvBlock& block, std::size_t index) {
    KvSlot& slot = block.slots[index];
    const Slot at{block.id, static_cast<std::int64_t>(index)};
    const KvRow* write = facts_.slots().last_writer(at, -1, step_.id, true);
    if (write == nullptr) {
      slot.words.emplace_back("never written");
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
      slot.words.push_back("scrubbed during " + step_text(write->step));
      return;
    }
    slot.words.push_back(slot.foreign ? fmt::format("state of a recurrent layer, written by {} as {}",
                                                    step_text(write->step), name(write->format))
                                      : fmt::format("token {} of {}, written as {} by {}", slot.token,
                                                    step_text(write->step), name(write->format), write->writer));
    look(slot, *write, at.slot);
    if (share != nullptr) {
      slot.words.push_back(fmt::format("shared with request {}, whose prompt begins alike", share->request));
    }
    if (slot.state == SlotState::stale) {
      slot.words.push_back(
          block.holders.empty()
              ? "left behind: its block was given back and not scrubbed"
              : fmt::format("left behind: its block was given back, not scrubbed, and is {}", block.words));
    }
  }

  std::string step_text(std::int64_t id) {
    const StepRow* step = facts_.run.step(id);
    return step == nullptr ? fmt::format("step {}", id) : request_text(*step);
  }

  const std::vector<Stored>& stored_by(const KvRow& write) {
    const auto [at, added] = stored_.try_emplace(&write);
    if (!added) return at->second;
    OpFilter filter;
    filter.step = write.step;
    filter.kind = "kv_store";
    if (write.layer >= 0) filter.layer = write.layer;
    for (const OpRow& op : facts_.run.ops(filter)) {
      for (const char* target : {"k", "v"}) {
        auto row = facts_.stored_row(write, {write.block, write.slot_begin}, op.layer, target);
        if (row) at->second.push_back({op.layer, op.name, std::move(*row)});
      }
    }
    return at->second;
  }

  /// What was stored, in the layer where it is worst.
  void look(KvSlot& slot, const KvRow& write, std::int64_t at) {
    std::vector<std::string> bad;
    for (const Stored& stored : stored_by(write)) {
      const TensorRow& codes = stored.first.codes;
      const std::vector<Health>& rows = facts_.rows(codes);
      const std::int64_t row = stored.first.row + at - write.slot_begin;
      if (row < 0 || row >= codes.tokens) continue;
      const bool detailed = static_cast<std::size_t>(row) < rows.size();
      const Cell health = cell_of(detailed ? rows[static_cast<std::size_t>(row)] : codes.health, 0);
      if (health >= kClipped) {
        bad.push_back(fmt::format("{} in layer {} {}", cell_name(health), stored.layer, codes.role.substr(0, 1)));
      }
      if (slot.target && health <= slot.health) continue;
      slot.health = std::max(slot.health, health);
      slot.target = place_of(write, stored, slot.token);
    }
    if (!bad.empty()) slot.words.push_back(fmt::format("{}", fmt::join(bad, ", ")));
  }

  Selection place_of(const KvRow& write, const Stored& stored, std::int64_t token) {
    Selection target;
    if (const StepRow* step = facts_.run.step(write.step)) {
      target.place.request = step->request;
      target.place.step = step->index;
    }
    target.place.layer = stored.layer;
    target.place.op = stored.op;
    target.place.role = stored.first.codes.role;
    target.place.token = token;
    return target;
  }

  /// Which slots the step reads, and what it finds where nobody stored keys and values.
  void mark_reads() {
    OpFilter filter;
    filter.step = step_.id;
    filter.kind = "kv_read";
    std::map<std::int64_t, std::optional<Slot>> places;
    for (const OpRow& op : facts_.run.ops(filter)) {
      for (const TensorRow& keys : facts_.run.tensors_of(op.id)) {
        const std::vector<Health>& rows = facts_.rows(keys);
        for (std::int64_t row = 0; row < std::min<std::int64_t>(keys.tokens, kMostSlots); ++row) {
          const auto [at, added] = places.try_emplace(row);
          if (added) at->second = facts_.slots().locate(step_.request, row, step_.id);
          KvSlot* slot = find(at->second);
          if (slot == nullptr) continue;
          if (!slot->read) {
            slot->words.push_back(row < step_.context
                                      ? fmt::format("read by {} as key {}", map_.when, row)
                                      : fmt::format("read by {}, although it is beyond its context", map_.when));
          }
          slot->read = true;
          if (!slot->foreign || static_cast<std::size_t>(row) >= rows.size()) continue;
          note_foreign(*slot, op, keys, rows[static_cast<std::size_t>(row)], row);
        }
      }
    }
  }

  void note_foreign(KvSlot& slot, const OpRow& op, const TensorRow& keys, const Health& health, std::int64_t row) {
    const Cell found = cell_of(health, 0);
    if (found <= slot.health) return;
    slot.health = found;
    if (found >= kInf) slot.words.push_back(fmt::format("read as {} in layer {}", cell_name(found), op.layer));
    Selection target;
    target.place.request = step_.request;
    target.place.step = step_.index;
    target.place.layer = op.layer;
    target.place.op = op.name;
    target.place.role = keys.role;
    target.place.token = row;
    slot.target = std::move(target);
  }

  KvSlot* find(const std::optional<Slot>& slot) {
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
  StepRow step_;
  const std::stop_token& stop_;
  KvMap map_;
  std::unordered_map<std::int64_t, std::vector<const KvRow*>> rows_;
  std::unordered_map<std::int64_t, std::size_t> index_;
  std::unordered_map<const KvRow*, std::vector<Stored>> stored_;
};

}  // namespace

Result<KvMap> make_kv_map(Facts& facts, const StepRow& step, const std::stop_token& stop) {
  return KvMapMaker(facts, step, stop).make();
}

}  // namespace nanscope::gui
