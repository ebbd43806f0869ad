#include "kernels/cpu/thread_pool.h"

#include <algorithm>

#include "kernels/cpu/float_environment.h"

namespace nanscope::kernels {
namespace {

/// Looks so often before it sleeps, some 50 us in all: products of a decode step follow one another sooner than that,
/// and to wake a sleeping thread takes as long as a small one of them.
template <class Done>
void await_briefly(const Done& done) {
  constexpr int kLooks = 100;
  constexpr int kPauses = 20;
  for (int look = 0; look < kLooks && !done(); ++look) {
    for (int i = 0; i < kPauses; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::this_thread::yield();  // to those who have work
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
  } catch (...) {
    // Those that were started wait on members that are about to go.
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void ThreadPool::run(RunRange run, const void* args, std::int64_t count, std::int64_t grain) {
  if (workers_.empty()) return run(args, 0, count);
  const Job job{run, args, count, grain};
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_.store(0, std::memory_order_relaxed);
    ++generation_;
    open_ = true;
  }
  wake_.notify_all();
  work(job);
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  await_briefly([this] { return active_.load(std::memory_order_relaxed) == 0; });
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return active_ == 0; });
}

std::int64_t ThreadPool::take(const Job& job, std::int64_t& begin) {
  begin = next_.load(std::memory_order_relaxed);
  for (;;) {
    const std::int64_t left = job.count - begin;
    if (left <= 0) return 0;
    const std::int64_t share = std::min(std::max(left / (std::int64_t{2} * threads()), job.grain), left);
    if (next_.compare_exchange_weak(begin, begin + share, std::memory_order_relaxed)) return share;
  }
}

void ThreadPool::work(const Job& job) {
  std::int64_t begin = 0;
  while (const std::int64_t share = take(job, begin)) job.run(job.args, begin, begin + share);
}

void ThreadPool::worker() {
  std::uint64_t seen = 0;
  for (;;) {
    await_briefly([&] { return generation_.load(std::memory_order_relaxed) != seen; });
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    if (!open_) continue;  // too late for that job
    const Job job = job_;
    ++active_;
    lock.unlock();
    set_default_float_environment();
    work(job);
    lock.lock();
    if (--active_ == 0) idle_.notify_one();
  }
}

}  // namespace nanscope::kernels
