#include "gui/background.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace nanscope::gui {
namespace {

using Job = Background<int>;

std::optional<Result<int>> wait_for(Job& job) {
  while (job.running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return job.take();
}

TEST(Background, AnswersOnce) {
  Job job;
  EXPECT_FALSE(job.running());
  job.start([](const std::stop_token&, const Job::Report& report) -> Result<int> {
    report({3, 4, "the third"});
    return 7;
  });
  const auto answer = wait_for(job);
  ASSERT_TRUE(answer);
  EXPECT_EQ(**answer, 7);
  EXPECT_EQ(job.progress().what, "the third");
  EXPECT_EQ(job.progress().share(), 0.75F);
  EXPECT_FALSE(job.take());
}

TEST(Background, CanBeCancelled) {
  Job job;
  job.start([](const std::stop_token& stop, const Job::Report&) -> Result<int> {
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return fail("stopped");
  });
  EXPECT_TRUE(job.running());
  job.cancel();
  const auto answer = wait_for(job);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(*answer);
  EXPECT_TRUE(job.cancelled());
}

TEST(Background, AnExceptionIsAnAnswer) {
  Job job;
  job.start([](const std::stop_token&, const Job::Report&) -> Result<int> { throw std::runtime_error("oh"); });
  const auto answer = wait_for(job);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().message, "internal error: oh");
}

TEST(Background, GoingAwayStopsTheWork) {
  bool stopped = false;
  {
    Job job;
    job.start([&stopped](const std::stop_token& stop, const Job::Report&) -> Result<int> {
      while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stopped = true;
      return 0;
    });
  }
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace nanscope::gui
