#include "kernels/cuda/runtime.h"

#include <fmt/format.h>

namespace nanscope::kernels::cuda {

Status checked(cudaError_t error, std::string_view what, std::string_view next) {
  if (error == cudaSuccess) return {};
  return fail(
      fmt::format("cuda: {} failed: {} ({}); {}", what, cudaGetErrorString(error), cudaGetErrorName(error), next));
}

Result<Stream> make_stream() {
  cudaStream_t stream = nullptr;
  const Status made = checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream", kFaultHint);
  if (!made) return tl::unexpected(made.error());
  return Stream(stream);
}

Result<Event> make_event() {
  cudaEvent_t event = nullptr;
  const Status made = checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event", kFaultHint);
  if (!made) return tl::unexpected(made.error());
  return Event(event);
}

Result<Pinned> make_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const Status made = checked(cudaMallocHost(&memory, bytes), fmt::format("pinning {} bytes of host memory", bytes),
                              "free memory on the host, or raise what may be locked (ulimit -l)");
  if (made) return Pinned(static_cast<std::byte*>(memory));
  cudaGetLastError();  // memory that could not be had does not fail the next launch
  return tl::unexpected(made.error());
}

}  // namespace nanscope::kernels::cuda
