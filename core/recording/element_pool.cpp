#include "core/recording/element_pool.h"

#include <iterator>
#include <new>
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

void ElementPool::give(std::vector<std::byte> bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t size = bytes.capacity();
  if (size == 0 || free_bytes_ + size > kMostBytes) return;
  try {
    free_.push_back(std::move(bytes));
    free_bytes_ += size;
  } catch (const std::bad_alloc&) {  // called by a destructor: where no memory is left, this one is let go of
  }
}

std::shared_ptr<const void> ElementPool::lend(std::vector<std::byte> bytes) {
  return std::make_shared<const Held>(shared_from_this(), std::move(bytes));
}

}  // namespace nanscope::insert
