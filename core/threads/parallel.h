#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <stop_token>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/threads/team.h"

namespace nanscope {

/// Does work(part, memory) for each of `count` parts on `threads` threads (0: one for each usable CPU), which have a
/// `Memory` each. The first error ends it; so does `stop`. Fails where memory runs out.
template <class Memory, class Work>
Status for_each_part(std::int64_t count, int threads, const std::stop_token& stop, const Work& work) {
  const std::int64_t most = threads > 0 ? threads : usable_cpus();
  Team team(static_cast<int>(std::clamp<std::int64_t>(count, 1, most)));
  std::vector<Memory> memories(static_cast<std::size_t>(team.size()));
  std::mutex mutex;
  Status status;
  const auto done = [&](Status one) {
    if (one) return;
    const std::lock_guard lock(mutex);
    if (status) status = std::move(one);
  };
  const auto failed = [&] {
    const std::lock_guard lock(mutex);
    return !status;
  };
  try {
    team.each(count, [&](std::int64_t part, int member) {
      if (failed()) return;
      done(stop.stop_requested() ? fail("stopped") : work(part, memories[static_cast<std::size_t>(member)]));
    });
  } catch (const std::bad_alloc&) {
    return fail("not enough memory");
  }
  return status;
}

/// work(i) for i in [0, count) on `threads` threads (0: one for each usable CPU). Fails where memory runs out.
template <class Work>
Status in_parallel(std::int64_t count, int threads, const Work& work) {
  struct Nothing {};
  return for_each_part<Nothing>(count, threads, {}, [&](std::int64_t part, Nothing&) -> Status {
    work(part);
    return {};
  });
}

}  // namespace nanscope
