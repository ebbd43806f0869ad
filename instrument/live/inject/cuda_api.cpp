#include "instrument/live/inject/cuda_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

namespace nanscope::live {

namespace {

template <class Function>
void look_up(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace

Result<CudaApi> CudaApi::loaded() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return fail("cuda: the process has not loaded libcuda.so.1");
  CudaApi api;
  std::string missing;
  look_up(library, "cuFuncGetParamInfo", api.function_parameter, missing);
  look_up(library, "cuKernelGetParamInfo", api.kernel_parameter, missing);
  look_up(library, "cuStreamIsCapturing", api.is_capturing, missing);
  look_up(library, "cuThreadExchangeStreamCaptureMode", api.exchange_capture_mode, missing);
  look_up(library, "cuModuleLoadData", api.load_module, missing);
  look_up(library, "cuModuleGetFunction", api.get_function, missing);
  look_up(library, "cuLaunchKernel", api.launch, missing);
  look_up(library, "cuMemAlloc_v2", api.allocate, missing);
  look_up(library, "cuMemsetD8Async", api.fill, missing);
  look_up(library, "cuMemcpyDtoHAsync_v2", api.copy_to_host, missing);
  look_up(library, "cuStreamSynchronize", api.wait, missing);
  look_up(library, "cuCtxGetCurrent", api.current_context, missing);
  look_up(library, "cuGetErrorName", api.error_name, missing);
  if (!missing.empty()) return fail(fmt::format("cuda: the driver has no {}: watching needs CUDA 12.4", missing));
  return api;
}

Status checked(const CudaApi& api, CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  if (api.error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  return fail(fmt::format("cuda: {} failed: {} ({})", what, name, static_cast<int>(result)));
}

}  // namespace nanscope::live
