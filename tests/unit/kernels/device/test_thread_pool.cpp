#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <vector>

#include "kernels/cpu/float_environment.h"
#include "kernels/cpu/thread_pool.h"

namespace nanscope::kernels {
namespace {

struct Counts {
  std::vector<std::atomic<int>> seen;
  std::atomic<int> wrong_environment{0};
};

void count_range(const void* args, std::int64_t begin, std::int64_t end) {
  auto& counts = *static_cast<Counts*>(const_cast<void*>(args));
  if (!current_float_environment().is_default()) ++counts.wrong_environment;
  for (std::int64_t i = begin; i < end; ++i) ++counts.seen[static_cast<std::size_t>(i)];
}

TEST(ThreadPool, EveryIndexIsRunOnce) {
  for (const int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 1000}) {
      for (const std::int64_t grain : {1, 3, 5000}) {
        Counts counts{std::vector<std::atomic<int>>(static_cast<std::size_t>(count)), 0};
        pool.run(count_range, &counts, count, grain);
        for (const auto& times : counts.seen) EXPECT_EQ(times, 1) << threads << " " << count << " " << grain;
        EXPECT_EQ(counts.wrong_environment, 0);
      }
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// In a process of its own, which would hang.
TEST(ThreadPool, ThreadsThatCannotBeStartedEndThoseThatWere) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};  // some hundred stacks
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(2000);
      std::_Exit(1);
    } catch (const std::exception&) {
      std::_Exit(0);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "ended by a signal, or with all of its threads";
}
#endif

TEST(ThreadPool, ManySmallRunsInARow) {
  ThreadPool pool(4);
  for (int i = 0; i < 3000; ++i) {
    Counts counts{std::vector<std::atomic<int>>(8), 0};
    pool.run(count_range, &counts, 8, 1);
    for (const auto& times : counts.seen) ASSERT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace nanscope::kernels
