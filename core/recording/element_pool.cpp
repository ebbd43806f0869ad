#include "core/recording/element_pool.h"

#include <iterator>
#include <utility>

namespace nanscope::insert {
namespace {

struct Held {
  Held(std::shared_ptr<ElementPool> of, std::vector<std::byte> held) : pool(std::move(of)), bytes(std::move(held)) {}
  ~Held() { pool->give(std::move(bytes)); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::shared_ptr<ElementPool> pool;
  std::vector<std::byte> bytes;
};

}  // namespace

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
  if (bytes.capacity() == 0 || free_bytes_ + bytes.capacity() > kMostBytes) return;
  free_bytes_ += bytes.capacity();
  free_.push_back(std::move(bytes));
}

std::shared_ptr<const void> ElementPool::lend(std::vector<std::byte> bytes) {
  return std::make_shared<const Held>(shared_from_this(), std::move(bytes));
}

}  // namespace nanscope::insert
