#include "kernels/cuda/pinned_pool.h"

#include <algorithm>
#include <utility>

namespace nanscope::kernels::cuda {

PinnedPool::Block PinnedPool::find(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto best = waiting_.end();
  for (auto block = waiting_.begin(); block != waiting_.end(); ++block) {
    const bool fits = block->bytes >= bytes && block->bytes / 2 <= bytes;
    if (fits && (best == waiting_.end() || block->bytes < best->bytes)) best = block;
  }
  if (best == waiting_.end()) return {};
  Block found = std::move(*best);
  waiting_.erase(best);
  waiting_bytes_ -= found.bytes;
  return found;
}

void PinnedPool::give_back(Block block) {
  const std::scoped_lock lock(mutex_);
  if (waiting_bytes_ + block.bytes > most_waiting_) return;
  waiting_bytes_ += block.bytes;
  waiting_.push_back(std::move(block));
}

Result<std::shared_ptr<void>> PinnedPool::take(std::size_t bytes) {
  Block block = find(bytes);
  if (!block.memory) {
    Result<Pinned> made = make_pinned(bytes);
    if (!made) return tl::unexpected(made.error());
    block = {std::move(*made), bytes};
  }
  void* memory = block.memory.get();
  auto owner = std::make_shared<Block>(std::move(block));
  return std::shared_ptr<void>(memory,
                               [pool = shared_from_this(), owner](void*) { pool->give_back(std::move(*owner)); });
}

}  // namespace nanscope::kernels::cuda
