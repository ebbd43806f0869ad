#include "scenarios/counterfactuals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;

const fs::path kLibrary = fs::path(NANSCOPE_SOURCE_DIR) / "scenarios";

std::vector<std::string> scenarios_with_a_fault() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kLibrary)) {
    if (entry.path().extension() != ".toml") continue;
    const auto scenario = load_scenario(entry.path());
    if (scenario && scenario->expect.verdict == Verdict::fault) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Changes tried on a scenario of the library: all, or those up to the first that removes the cause.
Counterfactuals changes_of(const Scenario& scenario, bool all = true) {
  const TemporaryFolder folder;
  RunnerOptions options;
  options.output = folder / "run.nanscope";
  options.capture = "none";
  const auto bench = workbench_for(scenario, options).value();
  EXPECT_TRUE(run_scenario(*bench, scenario, options));
  std::stop_source stop;
  CounterfactualOptions trying;
  trying.stop = stop.get_token();
  trying.ended = [&](const Outcome& outcome) {
    if (!all && outcome.effect == Effect::removes_cause) stop.request_stop();
  };
  return counterfactuals(*bench, Recording::open(options.output).value(), trying).value();
}

Scenario library_scenario(const std::string& name) { return load_scenario(kLibrary / (name + ".toml")).value(); }

class EveryFault : public testing::TestWithParam<std::string> {};
class EveryFaultLong : public EveryFault {};

/// One setting changed, and the fault of the scenario is gone: that is what names its cause. No setting mends weights.
/// What comes after that setting is tried with NANSCOPE_LONG_TESTS=1.
void expect_one_setting_removes(const std::string& name) {
  const Scenario scenario = library_scenario(name);
  std::string removed_by;
  const bool all = std::getenv("NANSCOPE_LONG_TESTS") != nullptr;
  for (const Outcome& outcome : changes_of(scenario, all).singles) {
    EXPECT_EQ(outcome.error, "") << outcome.change.text();
    if (outcome.effect == Effect::removes_cause) removed_by += outcome.change.text() + ' ';
  }
  const bool in_weights = scenario.expect.fault_class == "weight-corruption";
  EXPECT_EQ(removed_by.empty(), in_weights) << removed_by;
}

TEST_P(EveryFault, IsRemovedByOneSettingUnlessItIsInTheWeights) { expect_one_setting_removes(GetParam()); }

TEST(Candidates, HoldTheEpsilonThatServersAddToARoutersSum) {
  const std::vector<Outcome> singles = changes_of(library_scenario("router-cancellation")).singles;
  const auto found = std::find_if(singles.begin(), singles.end(),
                                  [](const Outcome& outcome) { return outcome.change.text() == "moe.eps=1e-20"; });
  ASSERT_NE(found, singles.end());
  EXPECT_EQ(found->effect, Effect::removes_cause);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// One of each kind of setting that removes a fault: policy, kernel form, format, padding, and none.
INSTANTIATE_TEST_SUITE_P(Library, EveryFault,
                         testing::Values("kv-scale-lock", "onepass-variance", "router-cancellation",
                                         "padding-poisons-scale", "weight-bit-flip"),
                         test_name);

TEST_P(EveryFaultLong, IsRemovedByOneSettingUnlessItIsInTheWeights) { expect_one_setting_removes(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Library, EveryFaultLong, testing::ValuesIn(scenarios_with_a_fault()), test_name);

}  // namespace
}  // namespace nanscope::scenarios
