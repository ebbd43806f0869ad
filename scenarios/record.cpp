#include "scenarios/record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "core/recording/capture_policy.h"
#include "core/recording/recording_file.h"
#include "core/recording/writer.h"
#include "instrument/recorder/recorder_probe.h"
#include "instrument/trace/launch_trace.h"
#include "scenarios/version.h"

namespace nanscope::scenarios {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Where the engine's ops run, and who is told: traced only when that is wanted.
class Tracing {
 public:
  static Result<std::unique_ptr<Tracing>> make(kernels::Device& device, bool wanted) {
    std::unique_ptr<Tracing> tracing(new Tracing(device));
    if (!wanted) return tracing;
    auto trace = make_launch_trace(device);
    if (!trace) return tl::unexpected(trace.error());
    tracing->trace_ = std::move(*trace);
    // What runs inside a graph is not told apart by the op that launched it.
    if (Status single = device.use_graphs(false); !single) return tl::unexpected(single.error());
    tracing->traced_.emplace(device, *tracing->trace_, tracing->ops_);
    return tracing;
  }

  ~Tracing() {
    // The next run's first launch tells what could not be done.
    if (traced_) static_cast<void>(device_.use_graphs(true));
  }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  kernels::Device& device() { return traced_ ? static_cast<kernels::Device&>(*traced_) : device_; }

  /// Runs with `probe` and, when tracing, writes what is reported.
  Result<RunResult> run(Engine& engine, const RunSpec& spec, Probe& probe, RecordingWriter& writer,
                        const RunControl& control) {
    if (!trace_) return engine.run(spec.requests, spec.transients, probe, control);
    TraceProbe tracing(probe, *trace_, ops_, writer);
    auto result = engine.run(spec.requests, spec.transients, tracing, control);
    if (Status finished = tracing.finish(); !finished && result) return tl::unexpected(finished.error());
    return result;
  }

 private:
  explicit Tracing(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  OpCounter ops_;
  std::unique_ptr<LaunchTrace> trace_;
  std::optional<TracedDevice> traced_;
};

Result<std::unique_ptr<RecordingWriter>> make_writer(std::optional<OutputFile> file, const RunInfo& info) {
  return file ? RecordingWriter::create(std::move(*file), info) : RecordingWriter::create_in_memory(info);
}

/// Without a file: in memory.
Result<Recorded> record_in(std::optional<OutputFile> file, Workbench& workbench, const RunSpec& spec,
                           const RecordOptions& options) {
  const auto begin = Clock::now();
  const auto capture = CapturePolicy::parse(options.capture);
  if (!capture) return tl::unexpected(capture.error());
  const std::filesystem::path path = file ? file->target() : std::filesystem::path();
  auto tracing = Tracing::make(workbench.device(), options.trace);
  if (!tracing) return tl::unexpected(tracing.error());
  auto engine = workbench.engine(spec.config, (*tracing)->device(), options.control.stop);
  if (!engine) return tl::unexpected(engine.error());
  const auto expected = (*engine)->expected_ops(spec.requests);
  if (!expected) return tl::unexpected(expected.error());
  auto writer = make_writer(std::move(file), run_info_of(spec, workbench.device().info(), *capture));
  if (!writer) return tl::unexpected(writer.error());
  (*writer)->set_expected_ops(expected->count);

  RecorderProbe probe(**writer, workbench.device(), workbench.weights(), *capture);
  const auto start = Clock::now();
  auto result = (*tracing)->run(**engine, spec, probe, **writer, options.control);
  const double seconds = seconds_since(start);
  if (!result) return tl::unexpected(result.error());
  if (path.empty()) {
    auto recording = (*writer)->finish_in_memory(result->ops);
    if (!recording) return tl::unexpected(recording.error());
    return Recorded{std::move(*recording), std::move(*result), seconds, seconds_since(begin)};
  }
  if (Status finished = (*writer)->finish(result->ops); !finished) return tl::unexpected(finished.error());
  writer->reset();
  const double total = seconds_since(begin);
  auto recording = Recording::open(path);
  if (!recording) return tl::unexpected(recording.error());
  return Recorded{std::move(*recording), std::move(*result), seconds, total};
}

}  // namespace

RunInfo run_info_of(const RunSpec& spec, const kernels::DeviceInfo& device, const CapturePolicy& capture) {
  RunInfo info;
  info.nanscope_version = kVersion;
  info.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  info.scenario = spec.scenario;
  info.config = to_json(spec);
  info.device = device.name;
  info.isa = device.isa;
  info.build = kBuild;
  info.cpu_features = device.cpu_features;
  info.float_environment = device.float_environment;
  info.capture = capture.text();
  return info;
}

Result<Recorded> record(Workbench& workbench, const RunSpec& spec, const RecordOptions& options) {
  if (options.path.empty()) return record_in(std::nullopt, workbench, spec, options);
  auto file = create_recording_file(options.path, options.output, true);
  if (!file) return tl::unexpected(file.error());
  return record_in(std::move(*file), workbench, spec, options);
}

Result<Recorded> record_to(OutputFile file, Workbench& workbench, const RunSpec& spec, const RecordOptions& options) {
  return record_in(std::move(file), workbench, spec, options);
}

}  // namespace nanscope::scenarios
