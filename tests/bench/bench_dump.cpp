#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/dump/open_dump.h"
#include "instrument/recompute/arithmetic.h"
#include "tests/bench/bench.h"
#include "tests/bench/reading.h"

/// bench_dump FOLDER [GIB]: scans a dump of so many GiB (4) that it writes into FOLDER, against reading the same bytes
/// and against numpy and torch doing NaN, Inf, absmax and a histogram of every tensor (the Python in $NANSCOPE_PYTHON,
/// or python3; left out where they are not installed). Exit 1 when a limit is missed. Dropping the cache for the cold
/// turn takes root; without, it is left out.
namespace nanscope {
namespace {

constexpr int kTurns = 5;

/// Tensors of 32 MiB under the names of a Llama, bf16, values of a normal size with their signs mixed.
void write_dump(const std::filesystem::path& path, std::int64_t gib) {
  constexpr std::int64_t kTensor = std::int64_t{32} << 20;
  const std::int64_t count = gib * (std::int64_t{1} << 30) / kTensor;
  nlohmann::json header;
  constexpr std::array<const char*, 4> kNames = {"self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj",
                                                 "mlp.down_proj"};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("model.layers.{}.{}.output", i / 4, kNames[static_cast<std::size_t>(i % 4)]);
    header[name] = {{"dtype", "BF16"}, {"shape", {1, 4096, 4096}}, {"data_offsets", {i * kTensor, (i + 1) * kTensor}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t size = text.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<std::uint16_t> values(static_cast<std::size_t>(kTensor / 2));
  std::uint64_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    // Exponents from 2^-7 to 2^0, as activations have them.
    value = static_cast<std::uint16_t>(((state >> 63U) << 15U) | ((120U + ((state >> 40U) & 7U)) << 7U) |
                                       ((state >> 50U) & 127U));
  }
  for (std::int64_t i = 0; i < count; ++i) file.write(reinterpret_cast<const char*>(values.data()), kTensor);
}

double scan(const std::filesystem::path& path) {
  const auto begin = Clock::now();
  const auto dump = must(OpenDump::open(path, {.threads = 0, .progress = {}, .stop = {}, .sums = false}));
  DumpRun run(dump->dump(), *dump);
  PlainArithmetic arithmetic;
  DiagnoseOptions options;
  options.recompute = false;
  const auto diagnosis = diagnose(run, arithmetic, options);
  if (!diagnosis || diagnosis->verdict() != Verdict::clean) std::exit(2);
  return seconds_since(begin);
}

bool drop_cache() {
  ::sync();
  std::ofstream drop("/proc/sys/vm/drop_caches");
  drop << "3\n";
  drop.flush();
  return static_cast<bool>(drop);
}

double read_cold(const std::filesystem::path& path) {
  const auto begin = Clock::now();
  const int file = ::open(path.c_str(), O_RDONLY);
  std::vector<char> buffer(std::size_t{8} << 20);
  while (::read(file, buffer.data(), buffer.size()) > 0) {
  }
  ::close(file);
  return seconds_since(begin);
}

/// Seconds that a peer needs for the file, nothing when it is not installed.
std::optional<double> peer(const std::string& name, const std::filesystem::path& path) {
  const char* python = std::getenv("NANSCOPE_PYTHON");
  const std::string command =
      fmt::format("{} {}/tests/bench/dump_peers.py {} '{}' 2>/dev/null", python != nullptr ? python : "python3",
                  NANSCOPE_SOURCE_DIR, name, path.string());
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  double seconds = 0;
  const bool read = std::fscanf(pipe, "%lf", &seconds) == 1;
  ::pclose(pipe);
  return read ? std::optional(seconds) : std::nullopt;
}

int bench(const std::filesystem::path& folder, std::int64_t gib) {
  const std::filesystem::path path = folder / "bench_dump.safetensors";
  write_dump(path, gib);
  const double bytes = static_cast<double>(std::filesystem::file_size(path));
  bool ok = true;
  std::vector<double> ratios;
  std::vector<double> scans;
  read_all(path);
  MemoryWatch memory;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double reading = read_all(path);
    scans.push_back(scan(path));
    ratios.push_back(reading / scans.back());
  }
  const double most = memory.most();
  const double warm = median(scans);
  ok = row("scan, warm / plain read", fmt::format("{:.2f} ({:.1f} GB/s)", median(ratios), bytes / warm / 1e9), ">= 0.6",
           median(ratios) >= 0.6) &&
       ok;
  ok = row("memory of its own while scanning", fmt::format("{:.0f} MiB", most), "<= 256", most <= 256) && ok;
  if (drop_cache()) {
    const double reading = read_cold(path);
    drop_cache();
    const double scanning = scan(path);
    ok = row("scan, cold / time to read the file", fmt::format("{:.2f} ({:.1f} s)", scanning / reading, scanning),
             "<= 1.1", scanning <= 1.1 * reading) &&
         ok;
  }
  for (const std::string name : {"numpy", "torch"}) {
    const std::optional<double> seconds = peer(name, path);
    if (!seconds) {
      row(name, "not installed", "", true);
      continue;
    }
    ok = row(name + " / scan", fmt::format("{:.1f}x ({:.1f} s)", *seconds / warm, *seconds), ">= 10x",
             *seconds >= 10 * warm) &&
         ok;
  }
  std::filesystem::remove(path);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_dump FOLDER [GIB]\n");
    return 2;
  }
  return nanscope::bench(argv[1], argc > 2 ? std::atoll(argv[2]) : 4);
}
