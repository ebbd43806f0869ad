#include "core/threads/team.h"

#include <sched.h>

#include <system_error>
#include <utility>

namespace nanscope {
namespace {

/// Looks for some 50 us before it sleeps: one piece of work often follows another sooner than that, as products of a
/// decode step do, and to wake a sleeping thread takes as long as a small one of them.
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

int usable_cpus() {
  cpu_set_t cpus;
  // It fails where the machine has more CPUs than the set holds.
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 0) return CPU_COUNT(&cpus);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : others_) thread.join();
}

void Team::start() {
  for (int member = static_cast<int>(others_.size()) + 1; member < size_; ++member)
    others_.emplace_back([this, member] { serve(member); });
}

void Team::share(const Job& job) {
  try {
    start();
  } catch (const std::system_error&) {
    size_ = static_cast<int>(others_.size()) + 1;
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_.store(0, std::memory_order_relaxed);
    ++jobs_;
    open_ = true;
  }
  wake_.notify_all();
  do_ranges(job, 0);
  std::unique_lock lock(mutex_);
  open_ = false;
  lock.unlock();
  await_briefly([this] { return active_.load(std::memory_order_relaxed) == 0; });
  lock.lock();
  idle_.wait(lock, [this] { return active_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

std::int64_t Team::take(const Job& job, std::int64_t& first) {
  first = next_.load(std::memory_order_relaxed);
  for (;;) {
    const std::int64_t left = job.count - first;
    if (left <= 0) return 0;
    const std::int64_t most = job.shrinking ? std::max(left / (std::int64_t{2} * size_), job.grain) : job.grain;
    const std::int64_t share = std::min(most, left);
    if (next_.compare_exchange_weak(first, first + share, std::memory_order_relaxed)) return share;
  }
}

void Team::do_ranges(const Job& job, int member) {
  std::int64_t first = 0;
  try {
    while (const std::int64_t share = take(job, first)) job.call(job.work, first, first + share, member);
  } catch (...) {
    next_.store(job.count, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Team::serve(int member) {
  std::uint64_t seen = 0;
  for (;;) {
    await_briefly([&] { return jobs_.load(std::memory_order_relaxed) != seen; });
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stop_ || jobs_ != seen; });
    if (stop_) return;
    seen = jobs_;
    if (!open_) continue;  // too late for that job
    const Job job = job_;
    ++active_;
    lock.unlock();
    do_ranges(job, member);
    lock.lock();
    if (--active_ == 0) idle_.notify_one();
  }
}

}  // namespace nanscope
