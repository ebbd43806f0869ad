#include "kernels/device.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace nanscope::kernels {
namespace {

Result<std::unique_ptr<Device>> unknown_device(const std::string& name) {
  return fail(
      fmt::format("unknown device '{}', expected cpu, cpu:baseline, cpu:avx2, cpu:avx512, cuda or cuda:N", name));
}

}  // namespace

Result<std::unique_ptr<Device>> make_device(const std::string& name, int threads) {
  if (name == "cpu") return make_cpu_device(Isa::best, threads);
  if (name == "cpu:baseline") return make_cpu_device(Isa::baseline, threads);
  if (name == "cpu:avx2") return make_cpu_device(Isa::avx2, threads);
  if (name == "cpu:avx512") return make_cpu_device(Isa::avx512, threads);
  if (name == "cuda") return make_cuda_device(0);
  constexpr std::string_view kCudaPrefix = "cuda:";
  if (name.starts_with(kCudaPrefix)) {
    int ordinal = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kCudaPrefix.size(), end, ordinal);
    if (error == std::errc{} && rest == end && ordinal >= 0) return make_cuda_device(ordinal);
  }
  return unknown_device(name);
}

#ifndef NANSCOPE_HAS_CUDA
Result<std::unique_ptr<Device>> make_cuda_device(int ordinal) {
  return fail(
      fmt::format("cuda:{}: this build of nanscope has no CUDA device; configure with -DNANSCOPE_CUDA=ON", ordinal));
}
#endif

}  // namespace nanscope::kernels
