#pragma once
/// What the CUDA device needs of the runtime, owned and with its errors in words.
#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

#include "core/result.h"

namespace nanscope::kernels::cuda {

/// What to do about an error that is found after the call that made it.
inline constexpr std::string_view kFaultHint =
    "a kernel that was launched earlier may be at fault: run again under compute-sanitizer";

/// "cuda: <what> failed: <CUDA's words>; <next>".
Status checked(cudaError_t error, std::string_view what, std::string_view next);
/// The same for calls that are made all the time: `what` is put into words when there is an error alone.
template <std::invocable What>
Status checked(cudaError_t error, const What& what, std::string_view next) {
  return error == cudaSuccess ? Status{} : checked(error, std::string_view(what()), next);
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    static_cast<void>(destroy(handle));
  }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy<cudaGraphDestroy>>;
using GraphExec = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy<cudaGraphExecDestroy>>;
/// Host memory that the GPU copies from and to without a detour.
using Pinned = std::unique_ptr<std::byte, Destroy<cudaFreeHost>>;

/// A stream that does not wait for the default stream.
Result<Stream> make_stream();
/// An event without a clock.
Result<Event> make_event();
Result<Pinned> make_pinned(std::size_t bytes);

}  // namespace nanscope::kernels::cuda
