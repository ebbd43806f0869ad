#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gui/prepare/run_map.h"

namespace nanscope::gui {

/// Embedding, layers in order, head.
inline std::int64_t group_order(std::int64_t layer, bool after_layers) {
  if (layer >= 0) return layer;
  return after_layers ? std::numeric_limits<std::int64_t>::max() : -1;
}

inline std::string group_name(std::int64_t order) {
  if (order < 0) return "embed";
  return order == std::numeric_limits<std::int64_t>::max() ? "head" : fmt::format("layer {}", order);
}

/// The rows while they are found: sorted by group, within it by first appearance.
class RowFinder {
 public:
  /// `expected`: the row that it is if all steps are alike, which spares the search.
  std::uint32_t find(std::int64_t layer, bool after_layers, const std::string& op, std::uint32_t expected) {
    const std::int64_t group = group_order(layer, after_layers);
    if (expected < order_.size() && order_[expected].key.first == group && order_[expected].key.second == op) {
      return expected;
    }
    const Key key{group, op};
    const auto [at, added] = found_.emplace(key, static_cast<std::uint32_t>(order_.size()));
    if (added) order_.push_back({key, layer});
    return at->second;
  }

  /// Sorts the rows; answers where each went.
  std::vector<std::uint32_t> sort_into(std::vector<MapRow>& rows) const {
    std::vector<std::uint32_t> sorted(order_.size());
    for (std::uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return order_[a].key.first < order_[b].key.first; });
    std::vector<std::uint32_t> went(sorted.size());
    for (std::uint32_t to = 0; to < sorted.size(); ++to) {
      const Found& from = order_[sorted[to]];
      rows.push_back({from.key.second, from.layer, group_name(from.key.first)});
      went[sorted[to]] = to;
    }
    return went;
  }

 private:
  using Key = std::pair<std::int64_t, std::string>;
  struct Found {
    Key key;
    std::int64_t layer;
  };
  std::map<Key, std::uint32_t> found_;
  std::vector<Found> order_;
};

}  // namespace nanscope::gui
