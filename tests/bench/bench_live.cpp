#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/bench.h"
#include "tests/unit/instrument/live/fake_cuda.h"

/// bench_live NANSCOPE [TURNS]: what the injected library takes of a program that launches a kernel every 5 us, as
/// PyTorch does, on a fake libcuda that costs nothing: alone, with a timeline, and watched at the default budget, in
/// turns. Exit 1 when a limit is missed. What CUPTI and the driver add on a GPU is not in it: tests/gpu/watch_bench.py
/// measures that.
namespace nanscope {
namespace {

constexpr auto kPace = std::chrono::nanoseconds(5000);
constexpr int kLaunches = 200000;
constexpr int kWarmUp = 20000;

/// As a decode loop of PyTorch has them: long names, few of them.
constexpr std::array kNames = {
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_",
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cudaERNS_"
    "18TensorIteratorBaseEENKUlvE1_clEvENKUlvE8_clEvEUlN3c104HalfEE_EEvS4_RKT_EUliE_EEviT1_",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c104HalfENS0_7MeanOpsIS4_ffS4_EEjS4_Li4ELi4EEEEEvT1_",
    "_ZN2at6native12_GLOBAL__N_119softmax_warp_forwardIN3c104HalfES4_fLi6ELb0ELb0EEEvPT0_PKT_iiiPKbib",
    "_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb",
    "nvjet_hsh_64x8_64x16_4x1_v_bz_NNT",
    "_ZN7cutlass7Kernel2I66cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8EEvNT_6ParamsE",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c104HalfENS0_9ArgMaxOpsIfEEjlLi4ELi4EEEEEvT1_"};

void nothing(void**) {}

/// The program that is measured: launches at their pace, and then says how long one took.
int loop() {
  cuInit(0);
  const std::size_t sizes[] = {8, 8, 8};
  std::vector<CUfunction> kernels;
  for (const char* name : kNames) kernels.push_back(fake_cuda_kernel(name, &nothing, sizes, 3));
  std::array<CUdeviceptr, 3> buffers{};
  for (CUdeviceptr& buffer : buffers) cuMemAlloc_v2(&buffer, 8192);
  void* arguments[] = {buffers.data(), &buffers[1], &buffers[2]};
  Clock::time_point begin;
  for (int i = 0; i < kWarmUp + kLaunches; ++i) {
    if (i == kWarmUp) begin = Clock::now();
    const Clock::time_point start = Clock::now();
    while (Clock::now() - start < kPace) continue;
    cuLaunchKernel(kernels[static_cast<std::size_t>(i) % kernels.size()], 128, 1, 1, 128, 1, 1, 0, nullptr, arguments,
                   nullptr);
  }
  fmt::print("{}\n", seconds_since(begin) / kLaunches);
  return 0;
}

/// What the loop says under `command`.
double run(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::array<char, 64> line{};
  double value = 0;
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr ||
      std::sscanf(line.data(), "%lf", &value) != 1) {  // NOLINT(cert-err34-c): checked
    fmt::print(stderr, "{}: no result\n", command);
    std::exit(2);
  }
  return value;
}

int measure(const std::string& nanscope, int turns) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path output = std::filesystem::temp_directory_path() / fmt::format("bench_live.{}", getpid());
  const auto attached = [&](std::string_view options) {
    const std::string file = output.string() + ".nanscope";
    const double time = run(fmt::format("LD_LIBRARY_PATH='{}' '{}' attach --run {} -o '{}' -- '{}' loop 2> /dev/null",
                                        NANSCOPE_FAKES, nanscope, options, file, self));
    std::filesystem::remove(file);
    return time;
  };
  struct Row {
    const char* what;
    const char* options;
    double limit;
    std::vector<double> ratios;
    std::vector<double> extra;
  };
  std::array<Row, 2> rows = {{{"timeline / alone", "", 0, {}, {}}, {"watched / alone", "--watch", 1.05, {}, {}}}};
  for (int turn = 0; turn < turns; ++turn) {
    const double alone = run(fmt::format("'{}' loop", self));
    for (Row& row : rows) {
      const double time = attached(row.options);
      row.ratios.push_back(time / alone);
      row.extra.push_back((time - alone) * 1e9);
    }
  }
  fmt::print("a launch every {} us, {} of them; medians of {} turns\n\n", kPace.count() / 1000, kLaunches, turns);
  bool missed = false;
  for (const Row& row : rows) {
    const double ratio = median(row.ratios);
    const bool met = row.limit == 0 || ratio <= row.limit;
    missed = missed || !met;
    fmt::print("| {:<16} | {:.3f} | {:>7} | {:<3} | {:.0f} ns a launch\n", row.what, ratio,
               row.limit == 0 ? "" : fmt::format("<= {:g}", row.limit),
               row.limit == 0 ? ""
               : met          ? "yes"
                              : "NO",
               median(row.extra));
  }
  return missed ? 1 : 0;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  if (argc == 2 && std::string_view(arguments[1]) == "loop") return nanscope::loop();
  int turns = 5;
  const std::string_view text = argc > 2 ? arguments[2] : "5";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), turns);
  if (argc < 2 || argc > 3 || error != std::errc{} || end != text.data() + text.size() || turns < 1) {
    fmt::print(stderr, "bench_live: expected NANSCOPE [TURNS], the nanscope program and a number from 1\n");
    return 2;
  }
  return nanscope::measure(arguments[1], turns);
}
