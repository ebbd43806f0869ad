#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/result.h"
#include "kernels/cuda/runtime.h"

namespace nanscope::kernels::cuda {

/// Pinned memory that was given back waits here for the next who wants some: to pin memory takes a driver 0.6 ms a MiB
/// (an H200's host, 2026-11-27), and to copy one over the bus 0.02. Any thread may use it.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  /// Bytes that wait; more are unpinned. What a process keeps of memory that others cannot have.
  static constexpr std::size_t kMostWaiting = std::size_t{256} << 20;

  explicit PinnedPool(std::size_t most_waiting = kMostWaiting) : most_waiting_(most_waiting) {}

  /// At least `bytes`, which may hold what others left there. It goes back to the pool, which it keeps alive. Errors:
  /// CUDA's.
  Result<std::shared_ptr<void>> take(std::size_t bytes);

 private:
  struct Block {
    Pinned memory;
    std::size_t bytes = 0;
  };
  /// The smallest that waits and fits, if it is not more than twice as large.
  Block find(std::size_t bytes);
  void give_back(Block block);

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::vector<Block> waiting_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace nanscope::kernels::cuda
