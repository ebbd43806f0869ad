#include "core/threads/team.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "core/threads/parallel.h"

namespace nanscope::testing::threads {
namespace {

TEST(Team, DoesEveryIndexOnceOnItsMembers) {
  for (const int threads : {1, 2, 7}) {
    Team team(threads);
    EXPECT_EQ(team.size(), threads);
    for (const std::int64_t count : {0, 1, 2, 1000}) {
      for (const std::int64_t grain : {0, 1, 3, 5000}) {
        std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
        team.run(count, grain, [&](std::int64_t first, std::int64_t last, int member) {
          EXPECT_GE(member, 0);
          EXPECT_LT(member, team.size());
          for (std::int64_t i = first; i < last; ++i) ++done[static_cast<std::size_t>(i)];
        });
        for (const auto& times : done) EXPECT_EQ(times, 1) << threads << ' ' << count << ' ' << grain;
      }
    }
  }
}

TEST(Team, DoesManySmallPiecesInARow) {
  Team team(4);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::atomic<int>> done(8);
    team.run(8, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t at = first; at < last; ++at) ++done[static_cast<std::size_t>(at)];
    });
    for (const auto& times : done) ASSERT_EQ(times, 1);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Some hundred stacks fit. In a process of its own, which would hang.
int ending_of_a_team_without_room(bool started_at_once) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      Team team(2000);
      if (started_at_once) team.start();
      std::atomic<std::int64_t> sum{0};
      team.run(5000, 1, [&](std::int64_t first, std::int64_t last, int) { sum += last - first; });
      std::_Exit(sum == 5000 && team.size() < 2000 ? 1 : 2);
    } catch (const std::system_error&) {
      std::_Exit(3);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Team, ThreadsThatCannotBeStartedEndThoseThatWere) { EXPECT_EQ(ending_of_a_team_without_room(true), 3); }

TEST(Team, WorksWithTheThreadsThatCouldBeStarted) { EXPECT_EQ(ending_of_a_team_without_room(false), 1); }
#endif

TEST(Team, TakesTurnsInTheOrderOfTheIndices) {
  Team team(4);
  InOrder turns;
  std::vector<std::int64_t> order;
  team.each(500, [&](std::int64_t i, int) { turns.take(i, [&] { order.push_back(i); }); });
  ASSERT_EQ(order.size(), 500U);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<std::int64_t>(i));
}

TEST(Team, NoThreadWaitsForATurnThatFailed) {
  Team team(4);
  InOrder turns;
  std::atomic<int> taken{0};
  const auto work = [&](std::int64_t i, int) {
    try {
      if (i == 20) throw std::runtime_error("here");
      turns.take(i, [&] { ++taken; });
    } catch (...) {
      turns.fail();
      throw;
    }
  };
  EXPECT_THROW(team.each(500, work), std::runtime_error);
  EXPECT_EQ(taken, 20);
}

TEST(Team, RethrowsAndWorksOn) {
  Team team(3);
  const auto fails = [](std::int64_t first, std::int64_t, int) {
    if (first > 10) throw std::runtime_error("here");
  };
  EXPECT_THROW(team.run(1000, 1, fails), std::runtime_error);
  std::atomic<std::int64_t> sum{0};
  team.run(1000, 1, [&](std::int64_t first, std::int64_t last, int) { sum += last - first; });
  EXPECT_EQ(sum, 1000);
}

TEST(Team, HasAThreadForEachUsableCpu) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(Team().size(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(Team().size(), 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(ForEachPart, GivesTheFirstErrorAndEndsThere) {
  struct Memory {
    int parts = 0;
  };
  std::atomic<int> done{0};
  const Status status = for_each_part<Memory>(1000, 1, {}, [&](std::int64_t part, Memory& memory) -> Status {
    EXPECT_EQ(memory.parts++, part);
    ++done;
    if (part == 5) return fail("part 5");
    return {};
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "part 5");
  EXPECT_EQ(done, 6);
}

TEST(ForEachPart, EndsWhenItIsStopped) {
  std::stop_source stop;
  std::atomic<int> done{0};
  const Status status = for_each_part<int>(1000, 2, stop.get_token(), [&](std::int64_t, int&) -> Status {
    ++done;
    stop.request_stop();
    return {};
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "stopped");
  EXPECT_LE(done, 2);
}

TEST(InParallel, FailsWhereMemoryRunsOut) {
  const Status status = in_parallel(100, 2, [](std::int64_t i) {
    if (i == 40) throw std::bad_alloc();
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "not enough memory");
}

}  // namespace
}  // namespace nanscope::testing::threads
