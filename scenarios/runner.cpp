#include "scenarios/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "core/recording/recording_file.h"
#include "core/system_reason.h"
#include "scenarios/cache_size.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/run_spec.h"

namespace nanscope::scenarios {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFailures = "nanscope-failures";
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kBetweenLooks{20};

/// What stands in the way of a run, and how to keep it.
std::string foreign(const fs::path& path, const Result<Recording>& there, const Scenario& scenario) {
  constexpr std::string_view kAdvice = "name another file with -o (--force replaces it)";
  if (there) {
    const std::string& other = there->info().scenario;
    return fmt::format("{}: exists and is a recording of {}, not of scenario '{}': {}", path.string(),
                       other.empty() ? std::string("a dump or a live process") : fmt::format("scenario '{}'", other),
                       scenario.name, kAdvice);
  }
  const std::string& reason = there.error().message;
  if (is_held_locked(there.error())) return reason + ": wait for its end, or name another file with -o";
  return fmt::format("{}: exists and is no recording of scenario '{}' ({}): {}", path.string(), scenario.name,
                     reason.substr(std::min(reason.size(), path.string().size() + 2)), kAdvice);
}

/// What a run may replace at `path`. Errors: what stands there is not to be replaced.
Result<OutputOptions> may_write(const fs::path& path, const Scenario& scenario, bool force) {
  const auto spec = resolve(scenario);
  if (!spec) return tl::unexpected(spec.error());
  OutputOptions output{.replace = force, .inputs = files_read(*spec), .mode = 0644};
  output.inputs.push_back(scenario.path);
  std::error_code error;
  const bool there = !force && fs::is_regular_file(path, error) && !is_stream(path);
  if (there) output.replaces = identity_of(path, false);
  // Before it is opened: one that is being written may be locked.
  if (Status allowed = check_output(path, output); !allowed) return tl::unexpected(allowed.error());
  if (!there) return output;
  const auto recording = Recording::open(path);
  // Opened, the file of a run that was killed before it had anything to write is empty.
  const bool own = recording ? recording->info().scenario == scenario.name : fs::is_empty(path, error);
  if (!own) return fail(foreign(path, recording, scenario));
  return output;
}

/// Another device than the one that the configuration states: the bits are the same, the place is not.
RunSpec with_device(RunSpec spec, const RunnerOptions& options) {
  if (!options.device.empty()) spec.config.device = options.device;
  if (options.threads) spec.config.threads = *options.threads;
  return spec;
}

/// Makes the file of the recording, before the model is loaded: of two runs into one file the one that asks first has
/// it. Of two that were started together nobody knows which that is, so the other waits a while for a short run's end.
/// Errors: what stands there is not to be replaced, or is still being written.
Result<OutputFile> claim(const Scenario& scenario, const RunnerOptions& options) {
  const fs::path path = options.output.empty() ? fs::path(scenario.name + ".nanscope") : options.output;
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const auto output = may_write(path, scenario, options.force);
    auto file = output ? create_recording_file(path, *output, true) : tl::unexpected(output.error());
    const bool waits = !file && is_being_written(path) && std::chrono::steady_clock::now() < patience;
    if (!waits || options.control.stop.stop_requested()) return file;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

bool sets(const Scenario& scenario, std::string_view setting) {
  return std::any_of(scenario.knobs.begin(), scenario.knobs.end(),
                     [&](const auto& knob) { return knob.name == setting; });
}

Result<ScenarioRun> record_into(OutputFile file, Workbench& workbench, const Scenario& scenario,
                                const RunnerOptions& options) {
  auto resolved = resolve(scenario);
  if (!resolved) return tl::unexpected(resolved.error());
  RunSpec spec = with_device(std::move(*resolved), options);
  if (!scenario.has_file && !sets(scenario, "kv.blocks")) {
    if (Status fits = fit_cache(workbench, spec, options.control.stop); !fits) {
      return fail(scenario.where() + fits.error().message);
    }
  }
  ScenarioRun run;
  run.scenario = scenario;
  run.recording = file.target();
  RecordOptions record_options;
  record_options.capture = options.capture;
  record_options.trace = options.trace;
  record_options.control = options.control;
  auto recorded = record_to(std::move(file), workbench, spec, record_options);
  if (!recorded) return fail(scenario.where() + recorded.error().message);
  run.seconds = recorded->seconds;
  // What was just run may be run again.
  RecordingTensors tensors(recorded->recording, options.control.stop, options.limits);
  auto analysis = analyse(recorded->recording, tensors, run.recording.string());
  if (!analysis) return tl::unexpected(analysis.error());
  run.analysis = std::move(*analysis);
  run.missed = judge(scenario, run.analysis);
  return run;
}

/// What the jobs of a suite share.
struct Suite {
  std::span<const fs::path> paths;
  const SuiteOptions& options;
  fs::path folder;
  std::vector<SuiteEntry> entries;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t done = 0;
};

void tell(Suite& suite, std::size_t finished, const std::string& name) {
  const std::lock_guard lock(suite.mutex);
  suite.done += finished;
  if (suite.options.progress) suite.options.progress(suite.done, suite.paths.size(), name);
}

/// Workbenches by device, so that scenarios of one model load it once.
class Workbenches {
 public:
  Result<Workbench*> get(const Scenario& scenario, const RunnerOptions& options) {
    const auto spec = resolve(scenario);
    if (!spec) return tl::unexpected(spec.error());
    const EngineConfig config = with_device(*spec, options).config;
    if (!workbench_ || device_ != config.device || threads_ != config.threads) {
      auto made = Workbench::open(config, options.limits);
      if (!made) return tl::unexpected(made.error());
      workbench_ = std::move(*made);
      device_ = config.device;
      threads_ = config.threads;
    }
    return workbench_.get();
  }

 private:
  std::unique_ptr<Workbench> workbench_;
  std::string device_;
  int threads_ = 0;
};

void run_entry(Suite& suite, SuiteEntry& entry, Workbenches& benches) {
  const auto scenario = load_scenario(entry.path);
  if (!scenario) {
    entry.error = scenario.error().message;
    return;
  }
  RunnerOptions options = suite.options.runner;
  options.output = suite.folder / (scenario->name + ".nanscope");
  const auto bench = benches.get(*scenario, options);
  auto run = bench ? run_scenario(**bench, *scenario, options) : tl::unexpected(bench.error());
  if (!run) {
    entry.error = run.error().message;
    return;
  }
  if (run->missed.empty() && suite.options.output.empty()) {
    std::error_code ignored;  // a recording that stays behind harms nobody
    fs::remove(run->recording, ignored);
    run->recording.clear();
  }
  entry.run = std::move(*run);
}

void work(Suite& suite) {
  Workbenches benches;
  while (!suite.options.runner.control.stop.stop_requested()) {
    const std::size_t index = suite.next++;
    if (index >= suite.entries.size()) return;
    SuiteEntry& entry = suite.entries[index];
    const std::string name = entry.path.stem().string();
    tell(suite, 0, name);
    try {
      run_entry(suite, entry, benches);
    } catch (const std::exception& error) {  // no exception leaves the thread
      entry.error = reason_of(error);
    }
    tell(suite, 1, name);
  }
}

}  // namespace

Result<std::unique_ptr<Workbench>> workbench_for(const Scenario& scenario, const RunnerOptions& options) {
  const auto spec = resolve(scenario);
  if (!spec) return tl::unexpected(spec.error());
  return Workbench::open(with_device(*spec, options).config, options.limits);
}

Result<ScenarioRun> run_scenario(Workbench& workbench, const Scenario& scenario, const RunnerOptions& options) {
  auto file = claim(scenario, options);
  if (!file) return tl::unexpected(file.error());
  return record_into(std::move(*file), workbench, scenario, options);
}

Result<ScenarioRun> run_scenario(const Scenario& scenario, const RunnerOptions& options) {
  auto file = claim(scenario, options);
  if (!file) return tl::unexpected(file.error());
  auto bench = workbench_for(scenario, options);
  if (!bench) return tl::unexpected(bench.error());
  return record_into(std::move(*file), **bench, scenario, options);
}

Result<std::vector<SuiteEntry>> run_suite(std::span<const fs::path> paths, const SuiteOptions& options) {
  Suite suite{.paths = paths, .options = options, .folder = {}, .entries = {}, .mutex = {}};
  suite.folder = options.output.empty() ? fs::path(kFailures) : options.output;
  std::error_code error;
  const bool made = fs::create_directories(suite.folder, error);
  if (error) return fail(fmt::format("{}: {}", suite.folder.string(), error.message()));
  for (const fs::path& path : paths) suite.entries.push_back({path, "not run", {}});
  const auto jobs = static_cast<std::size_t>(std::max(1, options.jobs));
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t i = 1; i < std::min(jobs, paths.size()); ++i) helpers.emplace_back([&suite] { work(suite); });
  } catch (const std::exception&) {  // no more threads are to be had: those that run do all of it
  }
  work(suite);
  helpers.clear();
  if (made && options.output.empty()) fs::remove(suite.folder, error);  // only when nothing was kept in it
  for (SuiteEntry& entry : suite.entries) {
    if (entry.run) entry.error.clear();
  }
  if (options.runner.control.stop.stop_requested()) return fail("stopped");
  return std::move(suite.entries);
}

}  // namespace nanscope::scenarios
