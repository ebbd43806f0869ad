#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace nanscope {

/// The row with this `id`, of rows in the order of their ids; null where there is none.
template <class Row>
const Row* by_id(std::span<const Row> rows, std::int64_t id) {
  const auto at =
      std::lower_bound(rows.begin(), rows.end(), id, [](const Row& row, std::int64_t key) { return row.id < key; });
  return at != rows.end() && at->id == id ? &*at : nullptr;
}

}  // namespace nanscope
