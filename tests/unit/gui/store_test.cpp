#include "gui/store.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "tests/unit/core/recording/sample.h"

namespace nanscope::gui {
namespace {

struct Number final : Prepared {
  explicit Number(int n) : value(n) {}
  int value;
};

Preparation number(int value) {
  return [value](RunFacts&) -> Result<PreparedPtr> { return std::make_shared<const Number>(value); };
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto writer = RecordingWriter::create(folder_ / "run.nanscope", sample::run_info());
    ASSERT_TRUE(writer) << writer.error().message;
    RequestRow request;
    request.prompt_tokens = {1, 2, 3, 4};
    (*writer)->add(request);
    sample::add_step(**writer, 1, 0, 0, 3, 4, 8, true);
    ASSERT_TRUE((*writer)->finish());
    auto run = open_run(folder_ / "run.nanscope");
    ASSERT_TRUE(run) << run.error().message;
    store = std::make_unique<Store>(std::move(*run));
  }

  /// Everything that is answered until the store is idle.
  std::vector<Answer> answers() {
    std::vector<Answer> all;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (bool idle = false; !idle && std::chrono::steady_clock::now() < deadline;) {
      idle = !store->activity();
      for (Answer& answer : store->poll()) all.push_back(std::move(answer));
      std::this_thread::yield();
    }
    return all;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Store> store;
};

TEST_F(StoreTest, AnswersInOrder) {
  const std::uint64_t first = store->ask("a", number(1));
  const std::uint64_t second = store->ask("b", number(2));
  const std::vector<Answer> all = answers();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].ticket, first);
  EXPECT_EQ(all[1].ticket, second);
  EXPECT_EQ(static_cast<const Number&>(**all[1].result).value, 2);
}

TEST_F(StoreTest, NewerTakesThePlaceOfTheSameKind) {
  std::promise<void> started;
  std::promise<void> go;
  store->ask("slow", [&](RunFacts&) -> Result<PreparedPtr> {
    started.set_value();
    go.get_future().wait();
    return PreparedPtr{};
  });
  started.get_future().wait();
  EXPECT_EQ(store->activity()->kind, "slow");
  store->ask("hover", number(1));
  store->ask("other", number(2));
  const std::uint64_t newest = store->ask("hover", number(3));
  go.set_value();
  const std::vector<Answer> all = answers();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].ticket, newest);
  EXPECT_EQ(static_cast<const Number&>(**all[1].result).value, 3);
  EXPECT_EQ(all[2].kind, "other");
}

TEST_F(StoreTest, WhatIsThrownBecomesAnAnswer) {
  store->ask("bad", [](RunFacts&) -> Result<PreparedPtr> { throw std::runtime_error("out of luck"); });
  const std::vector<Answer> all = answers();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all[0].result);
}

TEST_F(StoreTest, ClosingStopsWhatWaitsAndTellsWhatRuns) {
  std::promise<void> started;
  bool stopped = false;
  bool ran = false;
  store->ask("long", [&](RunFacts& facts) -> Result<PreparedPtr> {
    started.set_value();
    while (!facts.stop().stop_requested()) std::this_thread::yield();
    stopped = !facts.tensors().fetch(1);
    return PreparedPtr{};
  });
  store->ask("never", [&](RunFacts&) -> Result<PreparedPtr> {
    ran = true;
    return PreparedPtr{};
  });
  started.get_future().wait();
  store.reset();
  EXPECT_TRUE(stopped) << "elements are refused once the window closes";
  EXPECT_FALSE(ran);
}

TEST_F(StoreTest, KeepsTheMapAndTheStory) {
  store->ask("map", [](RunFacts& facts) -> Result<PreparedPtr> {
    const auto map = facts.map();
    if (!map) return tl::unexpected(map.error());
    if (*facts.map() != *map) return fail("made twice");
    return *map;
  });
  store->ask("story", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.story(); });
  const std::vector<Answer> all = answers();
  ASSERT_EQ(all.size(), 2U);
  ASSERT_TRUE(all[0].result) << all[0].result.error().message;
  EXPECT_EQ(static_cast<const RunMap&>(**all[0].result).columns, 4);
  ASSERT_TRUE(all[1].result) << all[1].result.error().message;
  EXPECT_FALSE(static_cast<const Story&>(**all[1].result).coverage.empty());
}

TEST_F(StoreTest, WhatMayWaitComesAfterWhatAnAnswerCauses) {
  store->ask("late", number(3), Urgency::later);
  store->ask("first", number(1));
  std::vector<Answer> all;
  while (all.empty()) all = store->poll();
  // A slow window: it has the answer, and asks because of it only now.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  store->ask("caused", number(2));
  for (Answer& answer : answers()) all.push_back(std::move(answer));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].kind, "first");
  EXPECT_EQ(all[1].kind, "caused");
  EXPECT_EQ(all[2].kind, "late");
}

TEST_F(StoreTest, TwoRunsKeepLittleWhateverTheyRecorded) {
  constexpr std::size_t kMost = 160'000'000;
  EXPECT_LT(2 * RunFacts::kReplayBudget + RunFacts::kCacheBudget, kMost);
  std::size_t budget = 0;
  store->ask("budget", [&](RunFacts& facts) -> Result<PreparedPtr> {
    budget = facts.tensors().cache_budget();
    return PreparedPtr{};
  });
  answers();
  EXPECT_EQ(budget, RunFacts::kCacheBudget);
}

TEST_F(StoreTest, ClosingEndsReadsThatAreUnderWay) {
  std::promise<void> started;
  bool failed = false;
  store->ask("endless", [&](RunFacts& facts) -> Result<PreparedPtr> {
    started.set_value();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!failed && std::chrono::steady_clock::now() < deadline) failed = !facts.recording()->tensors();
    return PreparedPtr{};
  });
  started.get_future().wait();
  store.reset();
  EXPECT_TRUE(failed) << "it went on reading until its deadline";
}

}  // namespace
}  // namespace nanscope::gui
