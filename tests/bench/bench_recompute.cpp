#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/numbers/codec.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/dump/open_dump.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "tests/bench/bench.h"
#include "tests/bench/reading.h"

/// bench_recompute FOLDER [MIB]: writes a checkpoint of so many MiB (2048) of bf16 projections of 4096 x 4096 and a
/// pass of 32 tokens through each of them into FOLDER, and diagnoses it, against reading the same bytes. Exit 1 when a
/// limit is missed, 2 when anything was not done again or not explained.
namespace nanscope {
namespace {

constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kTokens = 32;
constexpr int kTurns = 3;
constexpr double kMostTime = 3;
constexpr double kMostMemory = 512;

using Halves = std::vector<std::uint16_t>;

struct Entry {
  std::string name;
  std::int64_t rows = 0;
};

std::string header_of(const std::vector<Entry>& entries) {
  nlohmann::json header;
  std::int64_t at = 0;
  for (const Entry& one : entries) {
    const std::int64_t size = one.rows * kWidth * 2;
    header[one.name] = {{"dtype", "BF16"}, {"shape", {one.rows, kWidth}}, {"data_offsets", {at, at + size}}};
    at += size;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t size = text.size();
  std::string out(sizeof(size), '\0');
  std::memcpy(out.data(), &size, sizeof(size));
  return out + text;
}

void append(std::ofstream& file, const Halves& halves) {
  file.write(reinterpret_cast<const char*>(halves.data()), static_cast<std::streamsize>(2 * halves.size()));
}

/// Of both signs, from 2^-7 to 2^0 of `scale` in magnitude.
Halves noise(std::int64_t count, int scale, std::uint64_t& state) {
  Halves halves(static_cast<std::size_t>(count));
  for (std::uint16_t& half : halves) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t exponent = static_cast<std::uint64_t>(120 + scale) + ((state >> 40U) & 7U);
    half = static_cast<std::uint16_t>(((state >> 63U) << 15U) | (exponent << 7U) | ((state >> 50U) & 127U));
  }
  return halves;
}

float widened(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// x times the rows of the weight, each sum in f32 in order, rounded to bf16.
Halves product(const Halves& x, const Halves& weight) {
  std::vector<float> wide(x.size());
  std::transform(x.begin(), x.end(), wide.begin(), widened);
  std::vector<float> row(kWidth);
  Halves out(static_cast<std::size_t>(kTokens * kWidth));
  for (std::int64_t n = 0; n < kWidth; ++n) {
    std::transform(weight.begin() + n * kWidth, weight.begin() + (n + 1) * kWidth, row.begin(), widened);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      float sums[8] = {};
      const float* tokens = wide.data() + t * kWidth;
      for (std::size_t k = 0; k < kWidth; k += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += tokens[k + lane] * row[k + lane];
      }
      float sum = 0;
      for (const float one : sums) sum += one;
      out[static_cast<std::size_t>(t * kWidth + n)] =
          static_cast<std::uint16_t>(encode(Format::bf16, sum, Overflow::overflow));
    }
  }
  return out;
}

void write_dump(const std::filesystem::path& folder, std::int64_t layers) {
  std::filesystem::create_directories(folder / "step_0");
  std::vector<Entry> weights;
  std::vector<Entry> pass;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = fmt::format("model.layers.{:03}.mlp.down_proj.", layer);
    weights.push_back({name + "weight", kWidth});
    pass.push_back({name + "input", kTokens});
    pass.push_back({name + "output", kTokens});
  }
  std::ofstream checkpoint(folder / "model.safetensors", std::ios::binary);
  std::ofstream step(folder / "step_0" / "tensors.safetensors", std::ios::binary);
  checkpoint << header_of(weights);
  step << header_of(pass);
  std::uint64_t state = 1;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Halves x = noise(kTokens * kWidth, 0, state);
    const Halves weight = noise(kWidth * kWidth, -6, state);
    append(checkpoint, weight);
    append(step, x);
    append(step, product(x, weight));
  }
}

struct Turn {
  double opening = 0;
  double diagnosing = 0;
};

Turn turn(const std::filesystem::path& folder, std::int64_t layers) {
  Turn out;
  auto begin = Clock::now();
  const auto dump = must(OpenDump::open(folder, {.threads = 0, .progress = {}, .stop = {}, .sums = false}));
  out.opening = seconds_since(begin);
  begin = Clock::now();
  DumpRun run(dump->dump(), *dump);
  KernelArithmetic arithmetic;
  const auto diagnosis = diagnose(run, arithmetic, {});
  out.diagnosing = seconds_since(begin);
  const bool all = diagnosis && diagnosis->verdict() == Verdict::clean && diagnosis->recomputation.ops >= layers &&
                   diagnosis->recomputation.explained == diagnosis->recomputation.elements;
  if (!all) {
    fmt::print(stderr, "bench_recompute: {} of {} products were done again and explained\n",
               diagnosis ? diagnosis->recomputation.ops : 0, layers);
    std::exit(2);
  }
  return out;
}

int bench(const std::filesystem::path& parent, std::int64_t mib) {
  const std::filesystem::path folder = parent / "bench_recompute";
  const std::int64_t layers = std::max<std::int64_t>(1, mib * (std::int64_t{1} << 20) / (kWidth * kWidth * 2));
  write_dump(folder, layers);
  read_all(folder / "model.safetensors");
  std::vector<double> ratios;
  std::vector<double> whole;
  Turn last;
  MemoryWatch memory;
  for (int i = 0; i < kTurns; ++i) {
    const double reading = read_all(folder / "model.safetensors");
    last = turn(folder, layers);
    ratios.push_back(last.diagnosing / reading);
    whole.push_back((last.opening + last.diagnosing) / reading);
  }
  bool ok = row("diagnosing with all products done again / plain read",
                fmt::format("{:.2f} ({:.1f} s)", median(ratios), last.diagnosing), "<= 3", median(ratios) <= kMostTime);
  row("the same with the scan of the dump / plain read", fmt::format("{:.2f}", median(whole)), "none", true);
  const double most = memory.most();
  ok = row("memory of its own meanwhile", fmt::format("{:.0f} MiB", most), "<= 512", most <= kMostMemory) && ok;
  std::filesystem::remove_all(folder);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_recompute FOLDER [MIB]\n");
    return 2;
  }
  return nanscope::bench(argv[1], argc > 2 ? std::atoll(argv[2]) : 2048);
}
