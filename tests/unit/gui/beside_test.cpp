#include "gui/prepare/beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "gui/facts.h"
#include "scenarios/record.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;
using nanscope::testing::constant;
using nanscope::testing::RunBuilder;
using ::testing::HasSubstr;

/// Two ops a step, `steps` of them; the value of `odd` is another one.
RunBuilder run_of(int steps, int odd = -1) {
  RunBuilder builder;
  builder.request(0, {1});
  for (int step = 0; step < steps; ++step) {
    builder.step(0, step, step, 1);
    builder.op(1, "norm", "layer_norm", {});
    builder.output("out", {1, 4, step, 1}, constant(1));
    builder.op(1, "q_proj", "gemm", {});
    builder.output("out", {1, 4, step, 1}, constant(step == odd ? 3.0F : 2.0F));
  }
  return builder;
}

Divergence divergence(RunBuilder& here, RunBuilder& there) {
  Result<Divergence> found = find_divergence(BuiltView(here.run), BuiltView(there.run));
  EXPECT_TRUE(found) << found.error().message;
  return found ? *std::move(found) : Divergence{};
}

TEST(Divergence, IsTheFirstTensorInLogicalOrderWhoseBitsDiffer) {
  RunBuilder here = run_of(5);
  RunBuilder there = run_of(5, 3);
  const Divergence found = divergence(here, there);
  ASSERT_TRUE(found.first);
  EXPECT_EQ(to_string(found.first->place), "0/3/1/q_proj.out");
  EXPECT_EQ(found.words, "first differs at 0/3/1/q_proj.out, other bits \u00B7 1 of 10 tensors differ");
}

TEST(Divergence, EqualRunsHaveNone) {
  RunBuilder here = run_of(2);
  RunBuilder there = run_of(2);
  const Divergence found = divergence(here, there);
  EXPECT_FALSE(found.first);
  EXPECT_EQ(found.words, "no difference: 4 tensors have equal bits");
}

TEST(Divergence, AnotherFormatIsADifference) {
  RunBuilder here = run_of(2);
  RunBuilder there = run_of(2);
  there.run.tensor_rows[1].format = Format::bf16;
  const Divergence found = divergence(here, there);
  EXPECT_EQ(to_string(found.first->place), "0/0/1/q_proj.out");
  EXPECT_THAT(found.words, HasSubstr("1 \u00D7 4 f32 here, 1 \u00D7 4 bf16 there"));
}

TEST(Divergence, GoesOnlyToWhatIsHere) {
  RunBuilder here = run_of(2);
  RunBuilder there = run_of(3);
  Divergence found = divergence(here, there);
  EXPECT_FALSE(found.first) << "the third step is in the other run alone";
  EXPECT_THAT(found.words, HasSubstr("which only the other run has"));
  EXPECT_THAT(found.words, HasSubstr("2 unmatched"));
  found = divergence(there, here);
  EXPECT_EQ(to_string(found.first->place), "0/2/1/norm.out");
  EXPECT_THAT(found.words, HasSubstr("which the other run lacks"));
}

TEST(Divergence, WhatOnlyTheOtherRunHasIsNoPlaceToGoTo) {
  RunBuilder here = run_of(2, 0);
  RunBuilder there;
  there.request(0, {1});
  there.step(0, 0, 0, 1);
  there.op(1, "norm", "layer_norm", {});
  there.output("out", {1, 4, 0, 1}, constant(1));
  there.op(1, "k_norm", "layer_norm", {});
  there.output("out", {1, 4, 0, 1}, constant(1));
  there.op(1, "q_proj", "gemm", {});
  there.output("out", {1, 4, 0, 1}, constant(2));
  const Divergence found = divergence(here, there);
  EXPECT_EQ(to_string(found.first->place), "0/0/1/q_proj.out") << "and neither k_norm nor the second step";
}

/// A scenario of the library, recorded once for all tests of this file.
class RunBeside : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<TemporaryFolder>();
    path = *folder / "run.nanscope";
    const auto scenario = scenarios::load_scenario(fs::path(NANSCOPE_SOURCE_DIR) / "scenarios/prefix-poison.toml");
    ASSERT_TRUE(scenario) << scenario.error().message;
    const auto spec = scenarios::resolve(*scenario);
    const auto bench = scenarios::Workbench::open(spec->config);
    ASSERT_TRUE(scenarios::record(**bench, *spec, {.path = path, .control = {}}));
  }
  static void TearDownTestSuite() { folder.reset(); }

  static Result<BesideRunPtr> changed(const std::vector<std::string>& settings, const std::stop_token& stop = {}) {
    return run_changed(path, settings, stop, [](const JobProgress& now) { reported = now.total; });
  }

  static inline std::unique_ptr<TemporaryFolder> folder;
  static inline fs::path path;
  static inline std::atomic<std::int64_t> reported = 0;
};

TEST_F(RunBeside, IsTheRunWithTheSettingChangedAndGoesWithItsFolder) {
  Result<BesideRunPtr> run = changed({"kv.scrub=true"});
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ((*run)->label, "kv.scrub=true");
  EXPECT_GT(reported, 0);
  const fs::path file = (*run)->path;
  {
    const auto there = Recording::open(file);
    ASSERT_TRUE(there) << there.error().message;
    EXPECT_THAT(there->info().config, HasSubstr(R"("kv.scrub":true)"));
    EXPECT_EQ(*there->state(), RunState::complete);
  }
  run = fail("nobody holds it any more");
  EXPECT_FALSE(fs::exists(file));
  EXPECT_FALSE(fs::exists(file.parent_path()));
}

TEST_F(RunBeside, SaysWhatCannotBeRun) {
  const Result<BesideRunPtr> none = changed({"kv.scrab=true"});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("kv.scrab"));
  std::stop_source stopped;
  stopped.request_stop();
  const Result<BesideRunPtr> cancelled = changed({"kv.scrub=true"}, stopped.get_token());
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().message, "stopped");
}

TEST_F(RunBeside, IsKeptUnderANewName) {
  const Result<BesideRunPtr> run = changed({"kv.scrub=true"});
  ASSERT_TRUE(run) << run.error().message;
  const Result<fs::path> first = keep_beside(**run, path);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*first, *folder / "run-kv.scrub=true.nanscope");
  EXPECT_TRUE(Recording::open(*first));
  const Result<fs::path> second = keep_beside(**run, path);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE(*second, *first);
}

TEST_F(RunBeside, TheFactsHoldBothUntilItIsTakenAway) {
  Result<BesideRunPtr> run = changed({"kv.scrub=true"});
  ASSERT_TRUE(run) << run.error().message;
  const fs::path file = (*run)->path;
  RunFacts facts(*open_run(path));
  EXPECT_EQ(facts.beside(), nullptr);
  ASSERT_TRUE(facts.put_beside(*run));
  run = fail("the facts hold it");
  ASSERT_NE(facts.beside(), nullptr);
  EXPECT_EQ(facts.beside()->path(), file);
  EXPECT_TRUE(facts.beside()->tensors().fetch(1)) << "by a replay of its own";
  auto missing = std::make_shared<BesideRun>();
  missing->path = *folder / "missing.nanscope";
  EXPECT_FALSE(facts.put_beside(missing));
  EXPECT_NE(facts.beside(), nullptr) << "what stood there stays";
  ASSERT_TRUE(facts.put_beside(nullptr));
  EXPECT_EQ(facts.beside(), nullptr);
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace nanscope::gui
