#include "core/dump/slot_history.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nanscope {
namespace {

std::optional<std::int64_t> block_at(const SlotMap& map, std::size_t sequence, std::int64_t index) {
  if (index < 0 || index >= map.table_width) return std::nullopt;
  const auto at = sequence * static_cast<std::size_t>(map.table_width) + static_cast<std::size_t>(index);
  if (at >= map.table.size() || map.table[at] < 0) return std::nullopt;
  return map.table[at];
}

/// How many of the step's rows lie where a table of such blocks puts them; nothing when one does not.
std::optional<std::int64_t> agreeing(const SlotMap& map, const Step& step, std::int64_t block) {
  std::int64_t count = 0;
  for (std::size_t s = 0; s < step.spans.size(); ++s) {
    const Span& span = step.spans[s];
    for (std::int64_t row = span.row; row < span.row + span.rows; ++row) {
      if (row >= static_cast<std::int64_t>(map.slots.size())) continue;
      const std::int64_t position = span.position(row);
      const auto number = block_at(map, s, position / block);
      if (!number || *number * block + position % block != map.slots[static_cast<std::size_t>(row)])
        return std::nullopt;
      ++count;
    }
  }
  return count;
}

}  // namespace

bool has_block_size(const SlotMap& map, const Step& step, std::int64_t size) {
  const auto rows = agreeing(map, step, size);
  return rows && *rows > 0;
}

std::int64_t block_size_of(const SlotMap& map, const Step& step) {
  if (map.stated_block > 0) return map.stated_block;
  if (map.table.empty()) return map.pool_rows;
  constexpr std::array<std::int64_t, 11> kSizes = {16, 32, 64, 128, 8, 256, 4, 512, 2, 1, 1024};
  std::int64_t longest = 0;
  for (const Span& span : step.spans) longest = std::max(longest, span.context);
  const auto needed = [&](std::int64_t size) { return (longest + size - 1) / size; };
  for (const std::int64_t size : kSizes) {
    if (map.pool_rows % size != 0 || needed(size) > map.table_width) continue;
    if (!map.slots.empty()) {
      if (has_block_size(map, step, size)) return size;
    } else if (needed(size) == map.table_width) {
      return size;
    }
  }
  return map.slots.empty() ? 0 : map.pool_rows;
}

std::vector<KvRow> slot_history(const SlotMap& map, const Step& step, std::int64_t block, HeldBlocks& held) {
  std::vector<KvRow> rows;
  if (block <= 0) return rows;
  for (std::size_t s = 0; s < step.spans.size(); ++s) {
    const Span& span = step.spans[s];
    const std::set<std::int64_t> before = std::exchange(held[span.request], {});
    const auto holds = [&](std::int64_t number, std::int64_t first_token) {
      held[span.request].insert(number);
      if (before.contains(number)) return;
      KvRow row;
      row.step = step.id;
      row.request = span.request;
      row.block = number;
      row.slot_end = block;
      row.first_token = first_token;
      row.action = KvAction::allocated;
      row.format = map.format;
      rows.push_back(std::move(row));
    };
    if (map.table.empty()) {
      // One sequence in a pool without blocks begins where its slots do.
      if (step.spans.size() > 1 && map.slots.empty()) continue;
      const bool mapped = span.row < static_cast<std::int64_t>(map.slots.size());
      const std::int64_t begin = mapped ? map.slots[static_cast<std::size_t>(span.row)] - span.first_token : 0;
      if (begin >= 0) holds(0, -begin);
    }
    for (std::int64_t i = 0; i < map.table_width && i * block < span.context + block; ++i) {
      if (const auto number = block_at(map, s, i)) holds(*number, i * block);
    }
    for (std::int64_t at = span.row; at < span.row + span.rows; ++at) {
      const std::int64_t position = span.position(at);
      std::optional<std::int64_t> slot;
      if (at < static_cast<std::int64_t>(map.slots.size())) {
        slot = map.slots[static_cast<std::size_t>(at)];
      } else if (const auto number = block_at(map, s, position / block)) {
        slot = *number * block + position % block;
      } else if (map.table.empty() && step.spans.size() == 1) {
        slot = position;
      }
      if (!slot || *slot < 0) continue;
      KvRow row;
      row.step = step.id;
      row.request = span.request;
      row.block = *slot / block;
      row.slot_begin = *slot % block;
      row.slot_end = row.slot_begin + 1;
      row.first_token = position;
      row.action = KvAction::written;
      row.writer = "attention";
      row.format = map.format;
      const bool joins = !rows.empty() && rows.back().action == KvAction::written && rows.back().block == row.block &&
                         rows.back().slot_end == row.slot_begin &&
                         rows.back().first_token + rows.back().slot_end - rows.back().slot_begin == position;
      if (joins) {
        ++rows.back().slot_end;
      } else {
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace nanscope
