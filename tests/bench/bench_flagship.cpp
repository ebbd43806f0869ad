#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/recording/capture_policy.h"
#include "core/recording/writer.h"
#include "instrument/probe.h"
#include "instrument/recorder/recorder_probe.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/scenario.h"
#include "tests/bench/bench.h"

/// bench_flagship [SCENARIO.toml [FOLDER]]: what it costs to record a run, and to replay it with every hash
/// verified, against the same run with nobody listening, in turns in one process (docs/measurements.md). Wall
/// clock, the model being loaded. Exit 1 when a limit is
/// missed.
namespace nanscope::scenarios {
namespace {

constexpr int kTurns = 21;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds to write `bytes` into a new file in pieces of 1 MiB, up to the system's cache as the recording does.
double plain_file(const std::filesystem::path& path, std::size_t bytes) {
  static const std::vector<char> piece(std::size_t{1} << 20, 'x');
  std::filesystem::remove(path);
  const double time = seconds([&] {
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    for (std::size_t left = bytes; left > 0;) {
      const std::size_t count = std::min(left, piece.size());
      if (::write(file, piece.data(), count) != static_cast<ssize_t>(count)) std::exit(2);
      left -= count;
    }
    ::close(file);
  });
  std::filesystem::remove(path);
  return time;
}

struct Bench {
  Workbench& workbench;
  const RunSpec& spec;
  std::filesystem::path path;

  void unrecorded() const {
    NullProbe nobody;
    must(must(workbench.engine(spec.config))->run(spec.requests, nobody));
  }
  /// Seconds with health and hashes taken, and a writer that was finished before: what no recording can go below.
  double observed() const {
    const auto writer = must(RecordingWriter::create_in_memory({}));
    must(writer->finish());
    RecorderProbe probe(*writer, workbench.device(), workbench.weights(), must(CapturePolicy::parse("none")));
    return seconds([&] { must(must(workbench.engine(spec.config))->run(spec.requests, probe)); });
  }
  Recorded recorded(const std::string& capture) const {
    RecordOptions options;
    options.path = path;
    options.output.replace = true;
    options.capture = capture;
    std::filesystem::remove(path);
    return must(record(workbench, spec, options));
  }
};

std::size_t stored_bytes(const Recording& recording) {
  std::size_t bytes = 0;
  const Status walked = recording.for_each_tensor({}, [&](const TensorRow& row) {
    bytes += static_cast<std::size_t>(row.tokens * row.channels) * info(row.format).storage_bytes();
    return true;
  });
  if (!walked) std::exit(2);
  return bytes;
}

bool print(const std::string& name, double value, double limit, const std::string& detail) {
  const bool ok = value <= limit;
  fmt::print("| {:<51} | {:>6.2f} | <= {:.2f} | {:<3} | {}\n", name, value, limit, ok ? "ok" : "NO", detail);
  return ok;
}

bool bench(const Bench& bench) {
  const Recorded first = bench.recorded("all");
  const std::size_t bytes = stored_bytes(first.recording);
  bench.unrecorded();
  std::vector<double> plain;
  std::vector<double> file;
  std::vector<double> health_run;
  std::vector<double> health;
  std::vector<double> all;
  std::vector<double> replayed;
  std::vector<double> observed;
  std::vector<double> plain_cpu;
  std::vector<double> health_cpu;
  std::vector<double> all_cpu;
  double cpu = cpu_seconds();
  const auto cpu_since = [&cpu] {
    const double before = std::exchange(cpu, cpu_seconds());
    return cpu - before;
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    cpu_since();
    plain.push_back(seconds([&] { bench.unrecorded(); }));
    plain_cpu.push_back(cpu_since());
    observed.push_back(bench.observed());
    cpu_since();
    const Recorded recorded = bench.recorded("none");
    health_cpu.push_back(cpu_since());
    health_run.push_back(recorded.seconds);
    health.push_back(recorded.total_seconds);
    const Recording recording = must(Recording::open(bench.path));
    replayed.push_back(seconds([&] {
      if (!must(replay(bench.workbench, recording)).same()) std::exit(2);
    }));
    cpu_since();
    all.push_back(bench.recorded("all").total_seconds);
    all_cpu.push_back(cpu_since());
    file.push_back(plain_file(bench.path.string() + ".plain", bytes));
  }
  const double run = median(plain);
  const double allowed = run + median(file) / 0.7;
  const auto ms = [](double time) { return fmt::format("{:.1f} ms", time * 1e3); };
  fmt::print("{}: {} tensors, {:.1f} MB; unrecorded {}; medians of {} turns\n\n", bench.spec.scenario,
             first.result.tensors, static_cast<double>(bytes) * 1e-6, ms(run), kTurns);
  bool ok =
      print("run, health and hashes recorded / unrecorded", median(health_run) / run, 1.3, ms(median(health_run)));
  ok = print("the same until the file is closed / unrecorded", median(health) / run, 1.3, ms(median(health))) && ok;
  ok = print("all tensors / (unrecorded + bytes at 0.7 of a file)", median(all) / allowed, 1.0,
             ms(median(all)) + " against " + ms(allowed)) &&
       ok;
  fmt::print("  health and hashes taken and nothing written / unrecorded: {:.2f}\n", median(observed) / run);
  const double run_cpu = median(plain_cpu);
  fmt::print(
      "  in processor time of all threads, opening what was recorded included: {:.2f} with health and hashes, {:.2f} "
      "all tensors, of {}\n",
      median(health_cpu) / run_cpu, median(all_cpu) / run_cpu, ms(run_cpu));
  return print("replay, every hash verified / unrecorded", median(replayed) / run, 1.2, ms(median(replayed))) && ok;
}

}  // namespace
}  // namespace nanscope::scenarios

int main(int argc, char** argv) {
  using namespace nanscope::scenarios;
  // As in bench_recording: what a turn had in memory stays the process's, as that of a run that goes on.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const std::filesystem::path file = argc > 1 ? argv[1] : NANSCOPE_FLAGSHIP;
  const std::filesystem::path folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path();
  const RunSpec spec = must(resolve(must(load_scenario(file))));
  const auto workbench = must(Workbench::open(spec.config));
  const std::filesystem::path path = folder / "bench_flagship.nanscope";
  const bool ok = bench({*workbench, spec, path});
  std::filesystem::remove(path);
  return ok ? 0 : 1;
}
