#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace nanscope {

/// A set of ids that are added in ascending order. They mostly follow on each other: a million take one entry.
class IdRanges {
 public:
  void add(std::int64_t id) {
    if (!ranges_.empty() && ranges_.back().last + 1 == id) {
      ranges_.back().last = id;
    } else {
      ranges_.push_back({id, id});
    }
  }
  bool has(std::int64_t id) const {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), id,
                                        [](std::int64_t key, Range range) { return key < range.first; });
    return after != ranges_.begin() && id <= std::prev(after)->last;
  }

 private:
  struct Range {
    std::int64_t first, last;
  };
  std::vector<Range> ranges_;
};

}  // namespace nanscope
