#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace nanscope {

/// The CPUs that the system lets this process use (sched_setaffinity, taskset), at least 1.
int usable_cpus();

/// Lets work that is done at once go on in the order of its indices.
class InOrder {
 public:
  /// Calls work() once that of all indices before `index` is done; not at all where some of it has failed.
  template <class Work>
  void take(std::int64_t index, const Work& work) {
    for (std::int64_t now = next_.load(); now != index; now = next_.load()) {
      if (now == kFailed) return;
      next_.wait(now);
    }
    work();
    next_ = index + 1;
    next_.notify_all();
  }
  void fail() {
    next_ = kFailed;
    next_.notify_all();
  }

 private:
  static constexpr std::int64_t kFailed = -1;
  std::atomic<std::int64_t> next_{0};
};

/// Threads that share one piece of work at a time, the caller's among them. They start when work first needs them, or
/// with start(). If the system starts fewer, those do all of the work. One thread may call it.
class Team {
 public:
  /// `threads`: 0: one for each usable CPU.
  explicit Team(int threads = 0) : size_(threads > 0 ? threads : usable_cpus()) {}
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// How many threads it has at most.
  int size() const { return size_; }

  /// Starts those threads that do not run yet. Throws what std::thread does when one cannot be started.
  void start();

  /// Calls work(first, last, member) for ranges that cover [0, count), each of at least `grain` where so much is left.
  /// `member` is below size(); each thread has its own. Returns when all are done, and rethrows the first exception,
  /// after which no other range begins. Where the work writes each result to a place of its own, no bit depends on the
  /// number of threads.
  template <class Work>
  void run(std::int64_t count, std::int64_t grain, const Work& work) {
    if (count <= 0) return;
    if (size_ == 1 || count <= grain) return work(std::int64_t{0}, count, 0);
    const auto call = [](const void* done, std::int64_t first, std::int64_t last, int member) {
      (*static_cast<const Work*>(done))(first, last, member);
    };
    share({call, &work, count, std::max<std::int64_t>(1, grain), true});
  }

  /// work(index, member) for each index of [0, count): whoever is free takes the next one.
  template <class Work>
  void each(std::int64_t count, const Work& work) {
    const auto range = [&](std::int64_t first, std::int64_t last, int member) {
      for (std::int64_t i = first; i < last; ++i) work(i, member);
    };
    if (size_ == 1 || count <= 1) return range(0, count, 0);
    const auto call = [](const void* done, std::int64_t first, std::int64_t last, int member) {
      (*static_cast<const decltype(range)*>(done))(first, last, member);
    };
    share({call, &range, count, 1, false});
  }

 private:
  struct Job {
    void (*call)(const void* work, std::int64_t first, std::int64_t last, int member) = nullptr;
    const void* work = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
    bool shrinking = true;  ///< ranges are longer than `grain` as long as much is left
  };

  void share(const Job& job);
  void serve(int member);
  void do_ranges(const Job& job, int member);
  std::int64_t take(const Job& job, std::int64_t& first);

  int size_;
  std::vector<std::thread> others_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Job job_;            ///< guarded by mutex_, as what follows is
  bool open_ = false;  ///< who wakes too late finds the job closed
  bool stop_ = false;
  std::exception_ptr error_;
  std::atomic<std::uint64_t> jobs_{0};  ///< written under mutex_
  std::atomic<int> active_{0};          ///< written under mutex_
  std::atomic<std::int64_t> next_{0};
};

}  // namespace nanscope
