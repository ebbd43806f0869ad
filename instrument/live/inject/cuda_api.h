#pragma once
#include <cuda.h>

#include <memory>
#include <string_view>

#include "core/result.h"

/// The driver's functions as the process has them loaded.
namespace nanscope::live {

struct CudaApi {
  decltype(&cuFuncGetParamInfo) function_parameter = nullptr;
  decltype(&cuKernelGetParamInfo) kernel_parameter = nullptr;
  decltype(&cuStreamIsCapturing) is_capturing = nullptr;
  decltype(&cuThreadExchangeStreamCaptureMode) exchange_capture_mode = nullptr;
  decltype(&cuModuleLoadData) load_module = nullptr;
  decltype(&cuModuleGetFunction) get_function = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
  decltype(&cuMemAlloc) allocate = nullptr;
  decltype(&cuMemsetD8Async) fill = nullptr;
  decltype(&cuMemcpyDtoHAsync) copy_to_host = nullptr;
  decltype(&cuStreamSynchronize) wait = nullptr;
  decltype(&cuCtxGetCurrent) current_context = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;

  /// Error: the process has no libcuda, or one that lacks a function (older than CUDA 12.4).
  static Result<CudaApi> loaded();
};

/// One line: what failed, and CUDA's name of the error.
Status checked(const CudaApi& api, CUresult result, std::string_view what);

}  // namespace nanscope::live
