#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "scenarios/analysis.h"
#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

/// The diagnosis of a healthy run: a prompt of more than two windows, in chunks.
Diagnosis diagnosis_with(const std::string& cache) {
  const TemporaryFolder folder;
  const auto file = folder / "run.toml";
  std::ofstream(file) << R"(name = "run"
title = "a window of 24 keys"
text = "A healthy run."
[model]
weights = "reference"
window = 24
[kv]
format = "bf16"
block_size = 8
prefix_cache = false
window_cache = ")" << cache
                      << R"("
[engine]
batch = 2
chunk = 16
[[request]]
name = "t"
text = "Every evening the old keeper lights the great lamp. Moons pull tides, tides turn wheels, wheels drive machines."
max_tokens = 4
[expect]
verdict = "clean"
)";
  const auto scenario = load_scenario(file);
  EXPECT_TRUE(scenario) << scenario.error().message;
  RunnerOptions options;
  options.output = folder / "run.nanscope";
  EXPECT_TRUE(run_scenario(*workbench_for(*scenario, options).value(), *scenario, options));
  const auto run = OpenRun::open(options.output);
  EXPECT_TRUE(run) << run.error().message;
  return analyse(**run, {})->diagnosis;
}

/// A rolling cache gives the blocks behind the window back: what is read in their place was not stored by the sequence.
TEST(WindowCache, BlocksThatWereGivenBackAccuseNobody) {
  for (const std::string cache : {"all", "ring", "rolling"}) {
    const Diagnosis found = diagnosis_with(cache);
    EXPECT_TRUE(found.faults.empty()) << cache << ": " << found.faults.front().summary;
  }
}

}  // namespace
}  // namespace nanscope::scenarios
