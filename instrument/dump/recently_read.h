#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>

#include "core/dump/dump.h"

namespace nanscope {

/// Keeps what was read last in memory, so that a file of which one tensor after another is read is not opened and
/// mapped for each. Thread-safe.
class RecentlyRead {
 public:
  void keep(const ElementBytes& read) {
    if (read.bytes.size() > kLargest) return;
    std::shared_ptr<const void> oldest = read.owner;
    const std::lock_guard lock(mutex_);
    owners_[next_++ % kCount].swap(oldest);
  }

 private:
  /// Far fewer than the mappings that a system allows, and 16 MiB where what is read is a copy.
  static constexpr std::size_t kCount = 128;
  static constexpr std::size_t kLargest = std::size_t{128} << 10;

  std::mutex mutex_;
  std::array<std::shared_ptr<const void>, kCount> owners_;
  std::size_t next_ = 0;
};

}  // namespace nanscope
