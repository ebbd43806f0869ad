#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"
#include "instrument/quantize/quantize.h"

namespace nanscope {

/// Does work(part, memory, mutex) for each of `count` parts on several threads, which have a `Memory` each. The first
/// error ends it; so does options.stop.
template <class Memory, class Work>
Status for_each_part(std::int64_t count, const QuantizeOptions& options, const Work& work) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const std::int64_t threads = std::min<std::int64_t>(count, options.threads > 0 ? options.threads : cores);
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  Status status;
  const auto run = [&] {
    Memory memory;
    for (std::int64_t part = next++; part < count; part = next++) {
      Status done = options.stop.stop_requested() ? fail("stopped") : work(part, memory, mutex);
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (status) status = done;
      next = count;
    }
  };
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  others.clear();
  return status;
}

}  // namespace nanscope
