#include "scenarios/counterfactuals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
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

class EveryFault : public testing::TestWithParam<std::string> {};

/// One setting changed, and the fault of the scenario is gone: that is what names its cause. No setting mends weights.
TEST_P(EveryFault, IsRemovedByOneSettingUnlessItIsInTheWeights) {
  const TemporaryFolder folder;
  const Scenario scenario = load_scenario(kLibrary / (GetParam() + ".toml")).value();
  RunnerOptions options;
  options.output = folder / "run.nanscope";
  options.capture = "none";
  const auto bench = workbench_for(scenario, options).value();
  ASSERT_TRUE(run_scenario(*bench, scenario, options));
  const auto all = counterfactuals(*bench, Recording::open(options.output).value());
  ASSERT_TRUE(all) << all.error().message;
  std::string removed_by;
  for (const Outcome& outcome : all->singles) {
    EXPECT_EQ(outcome.error, "") << outcome.change.text();
    if (outcome.effect == Effect::removes_cause) removed_by += outcome.change.text() + ' ';
  }
  const bool in_weights = scenario.expect.fault_class == "weight-corruption";
  EXPECT_EQ(removed_by.empty(), in_weights) << removed_by;
}

TEST(Candidates, HoldTheEpsilonThatServersAddToARoutersSum) {
  const TemporaryFolder folder;
  const Scenario scenario = load_scenario(kLibrary / "router-cancellation.toml").value();
  RunnerOptions options;
  options.output = folder / "run.nanscope";
  options.capture = "none";
  const auto bench = workbench_for(scenario, options).value();
  ASSERT_TRUE(run_scenario(*bench, scenario, options));
  const auto all = counterfactuals(*bench, Recording::open(options.output).value());
  ASSERT_TRUE(all) << all.error().message;
  const auto found = std::find_if(all->singles.begin(), all->singles.end(),
                                  [](const Outcome& outcome) { return outcome.change.text() == "moe.eps=1e-20"; });
  ASSERT_NE(found, all->singles.end());
  EXPECT_EQ(found->effect, Effect::removes_cause);
}

INSTANTIATE_TEST_SUITE_P(Library, EveryFault, testing::ValuesIn(scenarios_with_a_fault()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace nanscope::scenarios
