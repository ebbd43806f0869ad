#include "scenarios/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>

#include "core/place.h"
#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "scenarios/counterfactuals.h"
#include "scenarios/record.h"
#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Result<TensorRow> find(const Recording& recording, const std::string& place) {
  RecordingRun rows(recording);
  StoredTensors tensors(recording);
  RecordingView run(rows, tensors);
  const Result<FoundPlace> found = find_place(run, place);
  if (!found) return tl::unexpected(found.error());
  return recording.tensor(found->tensor->id);
}

/// A scenario of the library, recorded once for all tests of this file.
class Replay : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    path_ = *folder_ / "recorded.nanscope";
    const fs::path file = fs::path(NANSCOPE_SOURCE_DIR) / "scenarios/prefix-poison.toml";
    scenario_ = std::make_unique<Scenario>(load_scenario(file).value());
    RunnerOptions options;
    options.output = path_;
    options.force = true;
    options.capture = "none";
    bench_ = workbench_for(*scenario_, options).value();
    run_ = std::make_unique<ScenarioRun>(run_scenario(*bench_, *scenario_, options).value());
  }
  static void TearDownTestSuite() {
    run_.reset();
    bench_.reset();
    scenario_.reset();
    folder_.reset();
  }

  /// A copy of the recording, changed by a statement.
  static fs::path tampered(const std::string& sql) {
    const fs::path copy = *folder_ / "tampered.nanscope";
    fs::copy_file(path_, copy, fs::copy_options::overwrite_existing);
    sqlite3* database = nullptr;
    EXPECT_EQ(sqlite3_open(copy.string().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
    return copy;
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline fs::path path_;
  static inline std::unique_ptr<Scenario> scenario_;
  static inline std::unique_ptr<Workbench> bench_;
  static inline std::unique_ptr<ScenarioRun> run_;
};

TEST_F(Replay, TheScenarioRanAsItExpects) {
  std::string all;
  for (const Missed& missed : run_->missed) all += to_string(missed) + '\n';
  EXPECT_TRUE(run_->missed.empty()) << all;
}

/// What changes one setting of a run has to begin with the same weights.
TEST_F(Replay, OtherWeightsThanTheRecordedAreRefused) {
  const Recording recording = Recording::open(path_).value();
  const EngineConfig config = run_spec_of(recording)->config;
  EXPECT_TRUE(bench_->load_recorded(config, recording));
  const fs::path copy = tampered("UPDATE weights SET hash = hash + 1 WHERE name = 'lm_head.weight'");
  const Recording other = Recording::open(copy).value();
  const Status refused = bench_->load_recorded(config, other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the weight 'lm_head.weight' is not the recorded one"));
}

TEST_F(Replay, VerifiesEveryTensorAndWeight) {
  const Recording recording = Recording::open(path_).value();
  const auto report = replay(*bench_, recording);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_TRUE(report->same());
  EXPECT_EQ(report->verified, report->tensors);
  EXPECT_EQ(report->tensors, recording.counts()->tensors);
  EXPECT_EQ(report->weights, static_cast<std::int64_t>(recording.weights()->size()));
}

TEST_F(Replay, StopsAtTheFirstTensorThatDiffers) {
  const fs::path copy = tampered("UPDATE tensors SET hash = ~hash WHERE id IN (7, 40)");
  const Recording recording = Recording::open(copy).value();
  const auto report = replay(*bench_, recording);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_FALSE(report->same());
  EXPECT_EQ(report->verified, 6);
  const auto place = place_of(recording, recording.tensor(7).value());
  EXPECT_EQ(report->divergence->place, to_string(*place));
  EXPECT_NE(report->divergence->expected, report->divergence->found);
  fs::remove(copy);
}

TEST_F(Replay, ReportsAWeightThatDiffers) {
  const fs::path copy = tampered("UPDATE weights SET hash = hash + 1 WHERE name = 'lm_head.weight'");
  const auto report = replay(*bench_, Recording::open(copy).value());
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_FALSE(report->same());
  EXPECT_EQ(report->divergence->place, "weight lm_head.weight");
  fs::remove(copy);
}

TEST_F(Replay, RemakesTensorsAndRefusesThoseThatAreNotTheRecordedOnes) {
  const Recording recording = Recording::open(path_).value();
  const auto logits = find(recording, "0/0/-/lm_head.logits");
  ASSERT_TRUE(logits.has_value()) << logits.error().message;
  ReplayTensors tensors(*bench_, recording);
  const auto data = tensors.fetch(logits->id);
  ASSERT_TRUE(data.has_value()) << data.error().text;
  EXPECT_EQ(data->tokens, logits->tokens);
  EXPECT_NE(data->value(0, 0), data->value(0, 0)) << "the poisoned request's logits are NaN";
  const auto norm = find(recording, "0/0/0/attn_norm.out");
  ASSERT_TRUE(norm.has_value());
  ASSERT_TRUE(tensors.fetch(norm->id).has_value());
  EXPECT_EQ(tensors.replays(), 1) << "one replay serves a whole step";

  const fs::path copy = tampered("UPDATE tensors SET hash = hash + 1 WHERE id = " + std::to_string(norm->id));
  const Recording changed = Recording::open(copy).value();
  ReplayTensors wrong(*bench_, changed);
  const auto refused = wrong.fetch(norm->id);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().text, HasSubstr("the recording has"));
  fs::remove(copy);
}

/// Less is kept than a step makes.
TEST_F(Replay, AWalkForwardsCostsOneReplayAndOneBackAnother) {
  const Recording recording = Recording::open(path_).value();
  const std::vector<TensorHash> all = recording.tensor_hashes().value();
  ReplayTensors tensors(*bench_, recording, std::size_t{1} << 16);
  for (const TensorHash& one : all) {
    const auto data = tensors.fetch(one.id);
    ASSERT_TRUE(data.has_value()) << data.error().text;
    ASSERT_EQ(data->tokens, one.tokens);
  }
  EXPECT_EQ(tensors.replays(), 1);
  EXPECT_TRUE(tensors.fetch(all.back().id).has_value()) << "the last one is kept";
  EXPECT_EQ(tensors.replays(), 1);
  EXPECT_TRUE(tensors.fetch(all.front().id).has_value());
  EXPECT_EQ(tensors.replays(), 2);
}

/// A run that nobody reads to its end waits, and is ended with what reads it.
TEST_F(Replay, TwoRunsWaitOnOneWorkbench) {
  const Recording recording = Recording::open(path_).value();
  const std::vector<TensorHash> all = recording.tensor_hashes().value();
  ReplayTensors one(*bench_, recording);
  ReplayTensors other(*bench_, recording);
  for (std::size_t i = 0; i < all.size() / 2; ++i) {
    const auto a = one.fetch(all[i].id);
    const auto b = other.fetch(all[i].id);
    ASSERT_TRUE(a.has_value() && b.has_value());
    ASSERT_TRUE(a->bytes == b->bytes);
  }
}

TEST_F(Replay, StopsWhileItRemakesATensor) {
  const Recording recording = Recording::open(path_).value();
  const auto logits = find(recording, "0/0/-/lm_head.logits");
  ASSERT_TRUE(logits.has_value()) << logits.error().message;
  std::stop_source source;
  ReplayTensors tensors(*bench_, recording, ReplayTensors::kBudget, source.get_token());
  ASSERT_TRUE(tensors.fetch(logits->id).has_value());
  source.request_stop();
  const auto first = find(recording, "0/0/-/embed");
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_FALSE(
      ReplayTensors(*bench_, recording, ReplayTensors::kBudget, source.get_token()).fetch(first->id).has_value());
}

TEST_F(Replay, ARecordingWithoutAConfigurationIsRefused) {
  const fs::path copy = tampered("UPDATE run SET value = '' WHERE key = 'config'");
  const auto report = replay(*bench_, Recording::open(copy).value());
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, HasSubstr("cannot be replayed"));
  fs::remove(copy);
}

TEST_F(Replay, CounterfactualsNameTheSettingsThatMatter) {
  const Recording recording = Recording::open(path_).value();
  const auto all = counterfactuals(*bench_, recording);
  ASSERT_TRUE(all.has_value()) << all.error().message;
  const auto effect = [&](const std::string& change) -> std::string {
    for (const Outcome& outcome : all->singles) {
      if (outcome.change.text() == change) return std::string(to_string(outcome.effect));
    }
    return "not tried";
  };
  EXPECT_EQ(all->baseline.faulty_requests, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(effect("attention.mask=select"), "removes the cause");
  EXPECT_EQ(effect("kv.memory=zeroed"), "removes the cause");
  EXPECT_EQ(effect("kv.scrub=true"), "removes the cause");
  EXPECT_EQ(effect("kv.prefix_cache=false"), "limits the spread") << "request 1 is clean when it is not shared with";
  EXPECT_EQ(effect("engine.argmax_nan=refuse"), "changes only the symptom");
  EXPECT_EQ(effect("kv.policy=locked"), "no effect");
  EXPECT_FALSE(all->minimal.empty());
}

TEST_F(Replay, CounterfactualsStopWhenAsked) {
  CounterfactualOptions options;
  std::stop_source source;
  source.request_stop();
  options.stop = source.get_token();
  EXPECT_FALSE(counterfactuals(*bench_, Recording::open(path_).value(), options).has_value());
}

}  // namespace
}  // namespace nanscope::scenarios
