#include "kernels/cpu/thread_pool.h"

#include <algorithm>

#include "kernels/cpu/float_environment.h"

namespace nanscope::kernels {

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
  std::unique_lock lock(mutex_);
  open_ = false;
  idle_.wait(lock, [this] { return active_ == 0; });
}

void ThreadPool::work(const Job& job) {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.count) return;
    job.run(job.args, begin, std::min(begin + job.grain, job.count));
  }
}

void ThreadPool::worker() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (open_ && generation_ != seen); });
    if (stop_) return;
    seen = generation_;
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
