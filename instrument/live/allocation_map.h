#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace nanscope::live {

/// A range of device memory.
struct Extent {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  bool operator==(const Extent&) const = default;
};

/// What a process has allocated on its devices, as its calls told: addresses are unique over all devices (unified
/// addressing). A caching allocator cuts its allocations up without telling; where its pieces begin is learnt from the
/// pointers that kernels are given.
class AllocationMap {
 public:
  /// Pieces that are remembered of one allocation; beyond them the farthest is forgotten.
  static constexpr std::size_t kMostPieces = 4096;

  /// An allocation of no bytes is not kept. One that overlaps others replaces them: their end was not seen.
  void add(const Extent& allocation);
  /// The allocation that begins there, if it is known.
  void remove(std::uint64_t address);
  /// All that lies in a range that was unmapped.
  void remove_range(const Extent& range);

  /// The allocation that holds an address.
  std::optional<Extent> find(std::uint64_t address) const;
  /// From `address` to the next piece that a kernel was given, or to the allocation's end; remembers `address` as the
  /// beginning of a piece. Nothing when the address lies in no allocation.
  std::optional<Extent> piece(std::uint64_t address);

  std::size_t size() const { return allocations_.size(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Allocation {
    std::uint64_t bytes = 0;
    std::set<std::uint64_t> pieces;
  };
  using Map = std::map<std::uint64_t, Allocation>;
  Map::const_iterator holding(std::uint64_t address) const;

  Map allocations_;
  std::uint64_t bytes_ = 0;
};

}  // namespace nanscope::live
