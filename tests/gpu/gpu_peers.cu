#include <chrono>
#include <string>

#include "tests/gpu/gpu_peers.h"

namespace nanscope::bench {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kBlocks = 132 * 4;  // four a multiprocessor of an H200

__global__ void __launch_bounds__(kThreads) read_all(const uint4* data, std::size_t count, unsigned* sink) {
  unsigned sum = 0;
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 word = data[i];
    sum ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (sum == 0x9e3779b9U) *sink = sum;  // the sum is wanted
}

Status checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return fail(std::string(what) + ": " + cudaGetErrorName(error));
}

}  // namespace

Status wait_for_gpu() { return checked(cudaDeviceSynchronize(), "waiting for the GPU"); }

Status plain_read(const void* data, std::size_t bytes, void* sink) {
  read_all<<<kBlocks, kThreads>>>(static_cast<const uint4*>(data), bytes / sizeof(uint4), static_cast<unsigned*>(sink));
  if (Status launched = checked(cudaGetLastError(), "reading"); !launched) return launched;
  return wait_for_gpu();
}

Result<double> pinned_copy(const void* data, std::size_t bytes) {
  void* host = nullptr;
  if (Status got = checked(cudaMallocHost(&host, bytes), "pinning memory"); !got) return tl::unexpected(got.error());
  const auto begin = std::chrono::steady_clock::now();
  const Status copied = checked(cudaMemcpy(host, data, bytes, cudaMemcpyDeviceToHost), "copying to the host");
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  cudaFreeHost(host);
  if (!copied) return tl::unexpected(copied.error());
  return time.count();
}

}  // namespace nanscope::bench
