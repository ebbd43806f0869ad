#pragma once
#include <cstddef>
#include <mutex>
#include <vector>

/// Memory of elements that were written, for those that come next: memory that was touched before is several times
/// faster than fresh memory. Private to core/recording.
namespace nanscope::insert {

/// Any thread may call.
class ElementPool {
 public:
  std::vector<std::byte> take(std::size_t size);
  void give(std::vector<std::byte> bytes);

 private:
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  std::mutex mutex_;
  std::vector<std::vector<std::byte>> free_;
  std::size_t free_bytes_ = 0;
};

}  // namespace nanscope::insert
