#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/reader.h"
#include "core/recording/writer.h"
#include "tests/bench/bench.h"

/// Measures the recording against its limits (docs/measurements.md): the time to open one of a million tensors and find
/// the first bad op, the time to check all of it, the write rate against a plain file's in the same run (wall clock,
/// and CPU time of all threads), and what a run of the flagship's size costs the engine's thread. Exit 1 when a limit
/// is missed. Arguments: the folder to write in, and one of rows, open, cache (tensors into the page cache), disk; all
/// without it.
namespace nanscope {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

bool missed = false;

/// "ok" or "NO".
const char* verdict(bool ok) {
  missed = missed || !ok;
  return ok ? "ok" : "NO";
}

struct Run {
  std::int64_t steps = 0;
  std::int64_t ops_per_step = 0;
  std::int64_t tensors_per_op = 1;
  std::int64_t tokens = 1;  ///< of a step; of every eighth one where `decode` is set, 1 of the others
  bool decode = false;
  std::int64_t channels = 256;
  bool bytes = false;
  std::int64_t bad_tensor = 0;
};

/// Writes a run and returns the seconds that its own thread spent in the writer.
double write(RecordingWriter& writer, const Run& run) {
  std::int64_t op_id = 0;
  std::int64_t tensor_id = 0;
  const auto begin = Clock::now();
  for (std::int64_t s = 1; s <= run.steps; ++s) {
    StepRow step;
    step.id = s;
    step.index = s - 1;
    const std::int64_t tokens = run.decode && s % 8 != 1 ? 1 : run.tokens;
    step.tokens = tokens;
    writer.add(step);
    for (std::int64_t o = 0; o < run.ops_per_step; ++o) {
      OpRow op;
      op.id = ++op_id;
      op.step = s;
      op.layer = o / 16;
      op.name = "attn_norm";
      op.kind = "layer_norm";
      op.attributes = R"({"eps":1e-05,"variance":"one_pass","order":"warp","contract":true})";
      const InputRow inputs[] = {{0, "x", tensor_id, ""}, {0, "weight", 0, "layers.11.attn_norm.weight"}};
      writer.add(op, inputs);
      for (std::int64_t t = 0; t < run.tensors_per_op; ++t) {
        TensorRow tensor;
        tensor.id = ++tensor_id;
        tensor.op = op.id;
        tensor.role = t == 0 ? "out" : "stats";
        tensor.tokens = tokens;
        tensor.channels = run.channels;
        tensor.hash = static_cast<std::uint64_t>(tensor.id) * 0x9e3779b97f4a7c15U;
        tensor.health.count = static_cast<std::uint64_t>(tokens * run.channels);
        tensor.health.sum = 1.25;
        tensor.health.max = tensor.health.absmax = 3.5F;
        if (tensor.id >= run.bad_tensor && run.bad_tensor > 0) {
          tensor.health.nan = 1;
          tensor.health.first_bad = 0;
        }
        TensorDetail detail;
        Health part = tensor.health;
        part.count = static_cast<std::uint64_t>(run.channels);
        detail.tokens.assign(static_cast<std::size_t>(tokens), part);
        if (run.channels > kTileChannels) {
          const LevelShape tiles = level_shape(tokens, run.channels, 0);
          part.count = kTileChannels;  // which divides the channels of all runs here that have more
          detail.tiles.assign(static_cast<std::size_t>(tiles.tiles()), part);
        }
        std::vector<std::byte> bytes;
        if (run.bytes) bytes = writer.buffer(static_cast<std::size_t>(tokens * run.channels) * 4);
        writer.add(std::move(tensor), std::move(detail), std::move(bytes));
      }
    }
    must(writer.commit_step());
  }
  return seconds_since(begin);
}

double plain_file(const std::filesystem::path& path, std::size_t total, std::size_t piece, bool sync) {
  // As much memory as a run holds, touched before: writing one small hot buffer again and again
  // would measure the cache.
  static const std::vector<std::byte> data(std::size_t{128} << 20, std::byte{1});
  std::filesystem::remove(path);
  const auto begin = Clock::now();
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  for (std::size_t done = 0; done < total; done += piece) {
    if (::write(file, data.data() + done % data.size(), piece) != static_cast<ssize_t>(piece)) std::exit(2);
  }
  if (sync) fdatasync(file);
  ::close(file);
  return seconds_since(begin);
}

void sync(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  fdatasync(file);
  ::close(file);
}

void measure_open(const std::filesystem::path& path) {
  Run run;
  run.steps = 1000;
  run.ops_per_step = 500;
  run.tensors_per_op = 2;
  run.bad_tensor = 876'543;
  WriterOptions options;
  options.output.replace = true;
  const double cpu = cpu_seconds();
  const auto begin = Clock::now();
  auto writer = must(RecordingWriter::create(path, {}, options));
  write(*writer, run);
  must(writer->finish(run.steps * run.ops_per_step));
  fmt::print("write 1000000 tensor rows: {:.2f} s, {:.2f} s of CPU, {:.0f} bytes a tensor\n", seconds_since(begin),
             cpu_seconds() - cpu, static_cast<double>(std::filesystem::file_size(path)) / 1e6);
  std::vector<double> times;
  for (int i = 0; i < 21; ++i) {
    const auto start = Clock::now();
    const auto recording = must(Recording::open(path));
    const auto bad = must(recording.first_bad_op());
    times.push_back(1e3 * seconds_since(start));
    if (!bad || bad->tensor.id != run.bad_tensor) std::exit(2);
  }
  fmt::print("open and first bad op of 1000000: {:.2f} ms, worst {:.2f} ms, limit 50 ms: {}\n", median(times),
             *std::max_element(times.begin(), times.end()), verdict(median(times) <= 50));
  std::vector<double> checked;
  for (int i = 0; i < 7; ++i) {
    const auto start = Clock::now();
    const auto recording = must(Recording::open_checked(path));
    checked.push_back(seconds_since(start));
  }
  fmt::print("open and check 1000000 tensors, 500000 ops: {:.2f} s, worst {:.2f} s, limit 1.5 s: {}\n", median(checked),
             *std::max_element(checked.begin(), checked.end()), verdict(median(checked) <= 1.5));
}

/// `to_disk`: both files are timed until one fdatasync at their end; else until the system has them.
void measure_rate(const std::filesystem::path& path, bool to_disk, std::int64_t tokens) {
  Run run;
  run.tokens = tokens;
  run.channels = 1024;
  run.ops_per_step = 8;
  run.bytes = true;
  const auto piece = static_cast<std::size_t>(run.tokens * run.channels) * 4;
  run.steps = static_cast<std::int64_t>((std::size_t{128} << 20) / piece) / run.ops_per_step;
  const std::size_t total = piece * static_cast<std::size_t>(run.steps * run.ops_per_step);
  std::vector<double> ratios;
  std::vector<double> rates;
  std::vector<double> cpu_ratios;
  constexpr int kTurns = 25;
  for (int i = -1; i < kTurns; ++i) {  // the first one touches memory
    WriterOptions options;
    options.output.replace = true;
    const double plain_begin = cpu_seconds();
    const double plain = plain_file(path.string() + ".plain", total, piece, to_disk);
    const double plain_cpu = cpu_seconds() - plain_begin;
    std::filesystem::remove(path.string() + ".plain");
    std::filesystem::remove(path);
    const double cpu_begin = cpu_seconds();
    const auto begin = Clock::now();
    auto writer = must(RecordingWriter::create(path, {}, options));
    write(*writer, run);
    must(writer->finish());
    if (to_disk) sync(path);
    const double recorded = seconds_since(begin);
    if (i < 0) continue;
    cpu_ratios.push_back(plain_cpu / (cpu_seconds() - cpu_begin));
    ratios.push_back(plain / recorded);
    rates.push_back(static_cast<double>(total) / recorded / (1 << 20));
  }
  fmt::print("write {} KiB tensors{}: {:.0f} MiB/s, {:.2f} of a plain file's rate, limit 0.7: {}; in CPU time {:.2f}\n",
             piece / 1024, to_disk ? " to the disk" : "", median(rates), median(ratios), verdict(median(ratios) >= 0.7),
             median(cpu_ratios));
}

void measure_flagship(const std::filesystem::path& path) {
  Run run;
  run.steps = 40;
  run.ops_per_step = 200;
  run.tensors_per_op = 2;
  run.tokens = 40;
  run.decode = true;
  std::vector<double> adds;
  std::vector<double> walls;
  std::vector<double> cpus;
  for (int i = 0; i < 11; ++i) {
    WriterOptions options;
    options.output.replace = true;
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    auto writer = must(RecordingWriter::create(path, {}, options));
    adds.push_back(1e3 * write(*writer, run));
    must(writer->finish());
    walls.push_back(1e3 * seconds_since(begin));
    cpus.push_back(1e3 * (cpu_seconds() - cpu));
  }
  fmt::print(
      "8000 ops, 16000 tensors of 40 tokens (prefill) and 1 (decode): {:.1f} ms in add(), {:.1f} ms in all, {:.1f} ms "
      "of CPU\n",
      median(adds), median(walls), median(cpus));
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  // What a turn had in memory stays the process's, as that of a run that goes on: new memory costs a virtual machine
  // more than writing it does.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const std::filesystem::path folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path();
  const std::string_view part = argc > 2 ? argv[2] : "all";
  const auto path = folder / "bench_recording.nanscope";
  const auto wanted = [&](std::string_view name) { return part == "all" || part == name; };
  if (wanted("rows")) nanscope::measure_flagship(path);
  if (wanted("open")) nanscope::measure_open(path);
  for (const bool to_disk : {false, true}) {
    if (!wanted(to_disk ? "disk" : "cache")) continue;
    for (const std::int64_t tokens : {16, 256, 4096}) nanscope::measure_rate(path, to_disk, tokens);
  }
  std::filesystem::remove(path);
  return nanscope::missed ? 1 : 0;
}
