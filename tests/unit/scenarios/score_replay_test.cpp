// Policies for the scales of scores, tried on a run whose weights change and whose scaling state is lost.
#include "scenarios/score_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>

#include "core/run/recording_view.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/report/scores_page.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::array kPolicies{"current", "delayed", "delayed_te", "monotonic", "geometry", "auto_alpha"};

/// run_of_attention() of ../instrument/spectral/oracle.py, which knows none of this: a layer of 4 heads of 16 on 24
/// random tokens a step, W_Q and W_K four times before step 8, the state lost before step 11, a burn-in of 3.
struct OracleStep {
  double absmax, calibrated, worst_case;
  std::array<double, 6> scales;
};
// clang-format off
constexpr OracleStep kOracle[] = {
    {4.5981513756555, 33.7085754988054, 35.6347419083938, {{0.010263730749231, 0.00248015873015873, 1, 0.00248015873015873, 0.0940529450301491, 0.0940529450301491}}},
    {5.72022816170669, 33.7085754988054, 35.6347419083938, {{0.012768366432381, 0.0114041452769234, 0.010263730749231, 0.0114041452769234, 0.0940529450301491, 0.0940529450301491}}},
    {4.75859282151094, 33.7085754988054, 35.6347419083938, {{0.0106218589765869, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 0.0940529450301491, 0.0940529450301491}}},
    {5.22162635935195, 33.7085754988054, 35.6347419083938, {{0.0116554159806963, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 0.0940529450301491, 0.0159604580404763}}},
    {5.33584412687039, 33.7085754988054, 35.6347419083938, {{0.0119103663546214, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 0.0940529450301491, 0.0159604580404763}}},
    {5.54205704510575, 33.7085754988054, 35.6347419083938, {{0.012370663047111, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 0.0940529450301491, 0.0159604580404763}}},
    {4.66227806913262, 33.7085754988054, 35.6347419083938, {{0.0104068706900282, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 0.0940529450301491, 0.0159604580404763}}},
    {5.58138317992379, 33.7085754988054, 35.6347419083938, {{0.0124584445980442, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 0.0940529450301491, 0.0159604580404763}}},
    {103.67481962223, 539.337207980887, 570.155870534301, {{0.231417008085335, 0.0141870738137567, 0.012768366432381, 0.0141870738137567, 1.50484712048239, 0.25536732864762}}},
    {106.00448415105, 539.337207980887, 570.155870534301, {{0.23661715212288, 0.257130008983705, 0.231417008085335, 0.257130008983705, 1.50484712048239, 0.25536732864762}}},
    {82.7275048201448, 539.337207980887, 570.155870534301, {{0.184659608973537, 0.2629079468032, 0.23661715212288, 0.2629079468032, 1.50484712048239, 0.25536732864762}}},
    {98.4882174460713, 539.337207980887, 570.155870534301, {{0.21983977108498, 0.00248015873015873, 1, 0.00248015873015873, 1.50484712048239, 1.50484712048239}}},
    {89.4123927665234, 539.337207980887, 570.155870534301, {{0.199581233853847, 0.244266412316645, 0.21983977108498, 0.244266412316645, 1.50484712048239, 1.50484712048239}}},
    {82.2612393481671, 539.337207980887, 570.155870534301, {{0.18361883783073, 0.244266412316645, 0.21983977108498, 0.244266412316645, 1.50484712048239, 1.50484712048239}}},
};
// clang-format on

struct OraclePolicy {
  const char* name;
  std::int64_t overflows;
  double largest, utilization;
};
constexpr OraclePolicy kOutcome[] = {
    {"current", 0, 448, 1},
    {"delayed", 4, 39710.4492742559, 0.863201315445492},
    {"delayed_te", 2, 8119.6619921016, 0.79934029960606},
    {"monotonic", 4, 39710.4492742559, 0.863201315445492},
    {"geometry", 0, 70.4420287670619, 0.129819788145361},
    {"auto_alpha", 0, 415.10589750236, 0.499904830923401},
};

ScoreRun oracle_run() {
  ScoreRun run;
  StepId step = 1;
  double before = 0;
  for (const OracleStep& one : kOracle) {
    run.points.push_back({step, 5, one.absmax, true});
    if (one.worst_case != before) run.bounds.push_back({step, 5, one.worst_case, one.calibrated});
    before = one.worst_case;
    ++step;
  }
  run.losses.push_back({12, 1});
  return run;
}

TEST(ScoreReplay, ScalesAreThoseOfTheOracle) {
  const ScoreRun run = oracle_run();
  ASSERT_EQ(run.bounds.size(), 2U);
  ScorePolicySettings settings;
  settings.burn_in = 3;
  const std::vector<ScoreTrial> trials = try_score_policies(run, policy_candidates(settings));
  ASSERT_EQ(trials.size(), kPolicies.size());
  for (std::size_t policy = 0; policy < trials.size(); ++policy) {
    const ScoreTrial& trial = trials[policy];
    EXPECT_EQ(trial.policy, kPolicies[policy]);
    ASSERT_EQ(trial.points.size(), run.points.size()) << trial.problem;
    for (std::size_t i = 0; i < trial.points.size(); ++i) {
      const double expected = kOracle[i].scales[policy];
      EXPECT_NEAR(trial.points[i].scale, expected, 1e-12 * expected) << trial.policy << " " << i;
    }
    EXPECT_EQ(trial.overflows, kOutcome[policy].overflows) << trial.policy;
    EXPECT_NEAR(trial.largest, kOutcome[policy].largest, 1e-10 * kOutcome[policy].largest) << trial.policy;
    EXPECT_NEAR(trial.utilization, kOutcome[policy].utilization, 1e-10) << trial.policy;
    const std::vector<ScoreLayerTrial> layers = by_layer(trial, run.points, 448);
    ASSERT_EQ(layers.size(), 1U);
    EXPECT_EQ(layers[0].layer, 5);
    EXPECT_EQ(layers[0].overflows, trial.overflows);
    EXPECT_DOUBLE_EQ(layers[0].utilization, trial.utilization);
  }
}

/// Slacks by hand: 30, 60 and 45 over a worst case of 300; the fourth step is beyond the burn-in, the NaN is no step.
TEST(ScoreReplay, SlackIsThatOfTheBurnIn) {
  ScoreRun run;
  run.points = {{1, 2, 30, true}, {2, 2, 60, true}, {3, 2, NAN, false}, {4, 2, 45, true}, {5, 2, 299, true}};
  run.bounds = {{1, 2, 300, 100}};
  ScorePolicySettings settings;
  settings.burn_in = 3;
  settings.quantile = 0.5;
  settings.kappa = 2;
  const std::vector<ScoreSlack> slacks = slack_by_layer(run, settings);
  ASSERT_EQ(slacks.size(), 1U);
  EXPECT_EQ(slacks[0].layer, 2);
  EXPECT_EQ(slacks[0].steps, 3);
  EXPECT_DOUBLE_EQ(slacks[0].smallest, 0.1);
  EXPECT_DOUBLE_EQ(slacks[0].largest, 0.2);
  EXPECT_DOUBLE_EQ(slacks[0].mean, 0.15);
  EXPECT_DOUBLE_EQ(slacks[0].quantile, 0.15);
  EXPECT_DOUBLE_EQ(slacks[0].alpha, 0.3);
}

TEST(ScoreReplay, APolicyThatWatchesToTheEndWasNotTried) {
  const ScoreRun run = oracle_run();
  ScorePolicySettings settings;
  for (const std::int64_t burn_in : {2, 1000}) {
    settings.burn_in = burn_in;
    for (const ScoreTrial& trial : try_score_policies(run, policy_candidates(settings))) {
      const bool watches = trial.policy == "auto_alpha" && burn_in == 1000;
      EXPECT_EQ(trial.problem, watches ? "its burn-in of 1000 steps is not over" : "") << trial.policy;
      EXPECT_EQ(trial.points.empty(), watches);
    }
  }
}

/// A layer is a picture; a dot stands where a policy overflows.
TEST(ScoreReplay, ThePageHasADotForEachOverflow) {
  const ScoreRun run = oracle_run();
  ScorePolicySettings settings;
  settings.burn_in = 3;
  const std::vector<ScoreTrial> trials = try_score_policies(run, policy_candidates(settings));
  const std::string html = report::scores_section({"run", run.points, trials, settings});
  const auto count = [&html](const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = html.find(part); at != std::string::npos; at = html.find(part, at + 1)) ++found;
    return static_cast<std::int64_t>(found);
  };
  std::int64_t overflows = 0;
  for (const OraclePolicy& policy : kOutcome) overflows += policy.overflows;
  EXPECT_EQ(count("<svg"), 1);
  EXPECT_EQ(count("<circle"), overflows);
  EXPECT_EQ(count("<path"), 12);
  EXPECT_THAT(html, HasSubstr(">448</text>"));
  EXPECT_THAT(html, HasSubstr("step 9: 103.7 over a scale of 0.01419 is 7308"));
}

/// A run of the library in memory, as it was recorded.
struct Recorder {
  explicit Recorder(const char* name) {
    const fs::path file = fs::path(NANSCOPE_SOURCE_DIR) / "scenarios" / (std::string(name) + ".toml");
    spec = resolve(load_scenario(file).value()).value();
    bench = Workbench::open(spec.config).value();
  }
  Recording recorded() const {
    RecordOptions options;
    options.capture = "all";
    return std::move(record(*bench, spec, options).value().recording);
  }

  RunSpec spec;
  std::unique_ptr<Workbench> bench;
};

ScoreRun scores_of_run(const Recording& recording) {
  RecordingRun rows(recording);
  StoredTensors tensors(recording);
  RecordingView view(rows, tensors);
  return score_run(view, &recording, {}).value();
}

/// What the trial says of the run's own policy is what the run's ledger has.
TEST(ScoreReplay, TheRunsOwnPolicyHasTheScalesOfItsLedger) {
  for (const char* name : {"fp8-scores-weight-spike", "fp8-scores-resumed"}) {
    Recorder recorder(name);
    for (const std::string policy : {"delayed", "geometry"}) {
      ASSERT_TRUE(apply_settings(recorder.spec.config, std::array{"scores.policy=" + policy}));
      const Recording recording = recorder.recorded();
      const ScoreRun run = scores_of_run(recording);
      const std::vector<ScoreTrial> trials = try_score_policies(run, policy_candidates({}));
      const ScoreTrial& own = policy == "delayed" ? trials[1] : trials[4];
      std::vector<ScaleRow> ledger = recording.scales().value();
      std::erase_if(ledger, [](const ScaleRow& row) { return row.target != "x"; });
      ASSERT_EQ(ledger.size(), own.points.size()) << name;
      for (std::size_t i = 0; i < ledger.size(); ++i) {
        EXPECT_FLOAT_EQ(static_cast<float>(ledger[i].scale), static_cast<float>(own.points[i].scale))
            << name << " " << policy << " " << i;
      }
    }
  }
}

TEST(ScoreReplay, OnlyHistoriesFailInTransients) {
  for (const char* name : {"fp8-scores-weight-spike", "fp8-scores-rate-spike", "fp8-scores-weights-loaded",
                           "fp8-scores-resumed", "fp8-scores-new-data"}) {
    const Recorder recorder(name);
    const std::vector<ScoreTrial> trials =
        try_score_policies(scores_of_run(recorder.recorded()), policy_candidates({}));
    for (const ScoreTrial& trial : trials) {
      const bool of_history = trial.policy == "delayed" || trial.policy == "delayed_te";
      const bool grows = trial.policy == "monotonic";
      EXPECT_TRUE(grows || (trial.overflows > 0) == of_history) << name << " " << trial.policy;
    }
  }
}

/// Two runs on one workbench whose weights change differently: neither takes the other's versions for its own.
TEST(ScoreReplay, ARunWhoseWeightsChangeIsReplayed) {
  Recorder recorder("fp8-scores-weight-spike");
  const Recording first = recorder.recorded();
  recorder.spec.transients[0].size = 2;
  const Recording second = recorder.recorded();
  for (const Recording* recording : {&first, &second}) {
    const ReplayReport report = replay(*recorder.bench, *recording).value();
    EXPECT_TRUE(report.same()) << report.divergence->place;
    EXPECT_EQ(report.verified, report.tensors);
    EXPECT_EQ(report.weights, 58);
  }
}

}  // namespace
}  // namespace nanscope::scenarios
