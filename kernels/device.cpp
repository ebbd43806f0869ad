#include "kernels/device.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace nanscope::kernels {
namespace {

Result<std::unique_ptr<Device>> unknown_device(const std::string& name) {
  return fail(fmt::format(
      "unknown device '{}', expected cpu, cpu:baseline, cpu:avx2, cpu:avx512, cuda or cuda:N, and cuda:nograph", name));
}

/// "cuda", "cuda:N", each with ":nograph" or without.
struct Gpu {
  int ordinal = 0;
  bool graphs = true;
};

std::optional<Gpu> parse_gpu(std::string_view name) {
  constexpr std::string_view kNoGraph = ":nograph";
  Gpu gpu;
  if (name.ends_with(kNoGraph)) {
    gpu.graphs = false;
    name.remove_suffix(kNoGraph.size());
  }
  if (name == "cuda") return gpu;
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, gpu.ordinal);
  if (error != std::errc{} || rest != end || gpu.ordinal < 0) return std::nullopt;
  return gpu;
}

}  // namespace

Result<std::unique_ptr<Device>> make_device(const std::string& name, int threads) {
  if (name == "cpu") return make_cpu_device(Isa::best, threads);
  if (name == "cpu:baseline") return make_cpu_device(Isa::baseline, threads);
  if (name == "cpu:avx2") return make_cpu_device(Isa::avx2, threads);
  if (name == "cpu:avx512") return make_cpu_device(Isa::avx512, threads);
  if (const std::optional<Gpu> gpu = parse_gpu(name)) return make_cuda_device(gpu->ordinal, gpu->graphs);
  return unknown_device(name);
}

}  // namespace nanscope::kernels
