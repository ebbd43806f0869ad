#include "instrument/live/allocation_map.h"

#include <iterator>
#include <limits>

namespace nanscope::live {

void AllocationMap::add(const Extent& allocation) {
  if (allocation.bytes == 0 || allocation.bytes > std::numeric_limits<std::uint64_t>::max() - allocation.address)
    return;
  remove_range(allocation);
  allocations_[allocation.address].bytes = allocation.bytes;
  bytes_ += allocation.bytes;
}

void AllocationMap::remove(std::uint64_t address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  bytes_ -= found->second.bytes;
  allocations_.erase(found);
}

void AllocationMap::remove_range(const Extent& range) {
  auto at = allocations_.lower_bound(range.address);
  if (at != allocations_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.bytes > range.address) at = before;
  }
  while (at != allocations_.end() && at->first < range.address + range.bytes) {
    bytes_ -= at->second.bytes;
    at = allocations_.erase(at);
  }
}

AllocationMap::Map::const_iterator AllocationMap::holding(std::uint64_t address) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return allocations_.end();
  --next;
  return address - next->first < next->second.bytes ? next : allocations_.end();
}

std::optional<Extent> AllocationMap::find(std::uint64_t address) const {
  const auto found = holding(address);
  if (found == allocations_.end()) return std::nullopt;
  return Extent{found->first, found->second.bytes};
}

std::optional<Extent> AllocationMap::piece(std::uint64_t address) {
  const auto found = holding(address);
  if (found == allocations_.end()) return std::nullopt;
  std::set<std::uint64_t>& pieces = allocations_.find(found->first)->second.pieces;
  const auto here = pieces.insert(address).first;
  const auto next = std::next(here);
  const std::uint64_t end = next == pieces.end() ? found->first + found->second.bytes : *next;
  const Extent piece{address, end - address};
  if (pieces.size() > kMostPieces) pieces.erase(*pieces.rbegin() == address ? pieces.begin() : std::prev(pieces.end()));
  return piece;
}

}  // namespace nanscope::live
