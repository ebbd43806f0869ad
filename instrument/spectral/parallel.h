#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// work(i) for i in [0, count), on `threads` (0: one a core) or as many as can be started. Fails where memory runs out.
template <class Work>
Status in_parallel(std::int64_t count, int threads, const Work& work) {
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  const auto loop = [&] {
    try {
      for (std::int64_t i = next++; i < count && !failed; i = next++) work(i);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  };
  {
    const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const std::int64_t wanted = std::min<std::int64_t>(threads == 0 ? cores : threads, count);
    std::vector<std::jthread> others;
    try {
      while (static_cast<std::int64_t>(others.size()) + 1 < wanted) others.emplace_back(loop);
    } catch (const std::system_error&) {
      // Fewer do the same.
    }
    loop();
  }
  if (failed) return fail("not enough memory");
  return {};
}

}  // namespace nanscope
