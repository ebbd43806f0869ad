#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace nanscope::kernels {

/// Threads that share the warps of one launch. Owned by its device; a pool of one thread has no
/// threads at all, everything runs in the caller.
class ThreadPool {
 public:
  using RunRange = void (*)(const void* args, std::int64_t begin, std::int64_t end);

  /// Throws what std::thread does when one cannot be started; none runs then.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs run(args, begin, end) over ranges that cover [0, count), at least `grain` at a time and fewer the less is
  /// left, on all threads including the caller's; returns when all are done.
  void run(RunRange run, const void* args, std::int64_t count, std::int64_t grain);

 private:
  struct Job {
    RunRange run = nullptr;
    const void* args = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
  };

  void work(const Job& job);
  void worker();
  /// How many indices from `begin` on are the caller's; 0 when none is left.
  std::int64_t take(const Job& job, std::int64_t& begin);
  void end();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Job job_;                                   // guarded by mutex_
  std::atomic<std::uint64_t> generation_{0};  // written under mutex_
  bool open_ = false;                         // guarded by mutex_: late wakers find the job closed
  std::atomic<int> active_{0};                // written under mutex_
  bool stop_ = false;                         // guarded by mutex_
  std::atomic<std::int64_t> next_{0};
};

}  // namespace nanscope::kernels
