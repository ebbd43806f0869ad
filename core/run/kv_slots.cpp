#include "core/run/kv_slots.h"

#include <algorithm>
#include <set>

namespace nanscope {

KvSlots::KvSlots(std::span<const KvRow> history, std::span<const Step> steps) : history_(history) {
  for (const Step& step : steps) {
    if (step.rank != 0) ranks_.emplace_back(step.id, step.rank);
  }
  for (std::size_t i = 0; i < history_.size(); ++i) {
    by_block_[history_[i].block].push_back(i);
    by_request_[history_[i].request].push_back(i);
  }
}

std::int64_t KvSlots::rank_of(std::int64_t step) const {
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), std::pair(step, std::int64_t{0}));
  return at != ranks_.end() && at->first == step ? at->second : 0;
}

std::optional<PoolSlot> KvSlots::locate(std::int64_t request, std::int64_t position, std::int64_t step) const {
  const auto rows = by_request_.find(request);
  if (rows == by_request_.end()) return std::nullopt;
  std::optional<PoolSlot> found;
  for (const std::size_t i : rows->second) {
    const KvRow& row = history_[i];
    if (!same_pool(row, step)) continue;
    if (row.step > step) break;
    const bool holds =
        row.writer != kRecurrentState && row.action != KvAction::freed && row.action != KvAction::scrubbed;
    if (!holds) continue;
    const std::int64_t slot = row.slot_begin + (position - row.first_token);
    if (slot >= row.slot_begin && slot < row.slot_end) found = PoolSlot{row.block, slot};
  }
  return found;
}

bool KvSlots::given_back(std::int64_t request, std::int64_t position, std::int64_t step) const {
  const auto rows = by_request_.find(request);
  if (rows == by_request_.end()) return false;
  bool before = false;   // this step
  bool in_step = false;  // as far as it was looked at
  for (const std::size_t i : rows->second) {
    const KvRow& row = history_[i];
    if (row.writer == kRecurrentState || !same_pool(row, step)) continue;
    if (row.step > step) break;
    if (row.step == step && row.action == KvAction::written) before = in_step;
    const std::int64_t slot = row.slot_begin + (position - row.first_token);
    if (slot < row.slot_begin || slot >= row.slot_end || row.action == KvAction::scrubbed) continue;
    in_step = row.action == KvAction::freed;
    if (row.step < step || !in_step) before = in_step;
  }
  return before;
}

const KvRow* KvSlots::last_writer(const PoolSlot& slot, std::int64_t layer, std::int64_t step, bool states) const {
  const auto rows = by_block_.find(slot.block);
  if (rows == by_block_.end()) return nullptr;
  const KvRow* found = nullptr;
  for (const std::size_t i : rows->second) {
    const KvRow& row = history_[i];
    if (!same_pool(row, step)) continue;
    if (row.step > step) break;
    if (row.action != KvAction::written && row.action != KvAction::scrubbed) continue;
    if (slot.slot < row.slot_begin || slot.slot >= row.slot_end) continue;
    const bool state = row.writer == kRecurrentState;
    if (state ? states : row.layer < 0 || row.layer == layer) found = &row;
  }
  return found;
}

const KvRow* KvSlots::shared(std::int64_t request, std::int64_t block, std::int64_t step) const {
  const auto rows = by_block_.find(block);
  if (rows == by_block_.end()) return nullptr;
  const KvRow* found = nullptr;
  for (const std::size_t i : rows->second) {
    const KvRow& row = history_[i];
    if (!same_pool(row, step)) continue;
    if (row.step > step) break;
    if (row.request != request) continue;
    if (row.action == KvAction::shared) found = &row;
    if (row.action == KvAction::allocated) found = nullptr;
  }
  return found;
}

bool KvSlots::freed_since(const KvRow& write, std::int64_t step) const {
  const auto rows = by_block_.find(write.block);
  if (rows == by_block_.end()) return false;
  const auto index = static_cast<std::size_t>(&write - history_.data());
  std::set<std::int64_t> holders;
  for (const std::size_t i : rows->second) {
    const KvRow& row = history_[i];
    if (!same_pool(row, step)) continue;
    if (row.step > step) break;
    if (row.action == KvAction::allocated || row.action == KvAction::shared) holders.insert(row.request);
    if (row.action != KvAction::freed) continue;
    holders.erase(row.request);
    if (i > index && holders.empty()) return true;
  }
  return false;
}

}  // namespace nanscope
