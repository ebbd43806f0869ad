#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/engine/engine.h"
#include "scenarios/analysis.h"
#include "scenarios/judge.h"
#include "scenarios/scenario.h"
#include "scenarios/workbench.h"

/// Runs scenarios, records them, and judges what was recorded.
namespace nanscope::scenarios {

struct RunnerOptions {
  std::filesystem::path output;  ///< the recording; empty: <scenario>.nanscope in the current folder
  bool force = false;            ///< replace any file
  std::string capture = "ring:1";
  bool trace = false;          ///< also record when the work of each op ran
  std::string device;          ///< empty: as the scenario says
  std::optional<int> threads;  ///< empty: as the scenario says
  RunLimits limits;            ///< what a run may take
  RunControl control;
};

/// A scenario that was run.
struct ScenarioRun {
  Scenario scenario;
  std::filesystem::path recording;
  Analysis analysis;
  std::vector<Missed> missed;  ///< empty: as expected
  double seconds = 0;
};

/// Runs one scenario. An existing file is replaced only when it is a recording of the same scenario, or with
/// `force`. Errors: the scenario, the file, the device.
Result<ScenarioRun> run_scenario(Workbench& workbench, const Scenario& scenario, const RunnerOptions& options);

/// The same on a workbench of its own, which is opened when the recording's file is certain.
Result<ScenarioRun> run_scenario(const Scenario& scenario, const RunnerOptions& options);

/// Opens the device that the scenario (or the options) names.
Result<std::unique_ptr<Workbench>> workbench_for(const Scenario& scenario, const RunnerOptions& options);

struct SuiteOptions {
  std::filesystem::path output;  ///< folder for the recordings; empty: only those of failures are kept, in
                                 ///< nanscope-failures/ in the current folder
  int jobs = 1;                  ///< scenarios at a time
  RunnerOptions runner;          ///< `output` is not used
  /// Called when a scenario begins and when it ended, one call at a time.
  std::function<void(std::size_t done, std::size_t total, const std::string& name)> progress;
};

/// One scenario of a suite.
struct SuiteEntry {
  std::filesystem::path path;
  std::string error;               ///< it could not be run; `run` is then empty
  std::optional<ScenarioRun> run;  ///< `recording` is empty when it was not kept
  bool passed() const { return run && run->missed.empty(); }
};

/// Runs all scenarios, in the order of `paths` when jobs is 1. Errors: a folder that cannot be made.
Result<std::vector<SuiteEntry>> run_suite(std::span<const std::filesystem::path> paths, const SuiteOptions& options);

}  // namespace nanscope::scenarios
