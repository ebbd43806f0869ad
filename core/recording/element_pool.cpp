#include "core/recording/element_pool.h"

#include <iterator>
#include <utility>

namespace nanscope::insert {
std::vector<std::byte> ElementPool::take(std::size_t size) {
  std::vector<std::byte> found;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
      if (it->capacity() < size) continue;
      found = std::move(*it);
      free_bytes_ -= found.capacity();
      free_.erase(std::next(it).base());
      break;
    }
  }
  found.resize(size);
  return found;
}

void ElementPool::give(std::vector<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = bytes.capacity();
  if (size == 0 || free_bytes_ + size > kMostBytes) return;
  free_.push_back(std::move(bytes));
  free_bytes_ += size;
}

}  // namespace nanscope::insert
