#include "fake_cuda.h"

#include <cupti.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../cupti/fake_cupti.h"
#include "instrument/live/format_scan.h"

using nanscope::live::ScanJob;

struct CUfunc_st {
  std::string name;
  FakeKernel code = nullptr;
  std::vector<std::size_t> sizes;
};

namespace {

std::uint32_t correlation = 0;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// A call of the driver's with its two callbacks; CUPTI's API is not known where it is not loaded.
template <class Params, class Body>
CUresult api(CUpti_CallbackId id, Params params, const char* symbol, Body body) {
  CUresult result = CUDA_SUCCESS;
  std::uint64_t shared = 0;
  CUpti_CallbackData data{};
  data.callbackSite = CUPTI_API_ENTER;
  data.functionParams = &params;
  data.functionReturnValue = &result;
  data.symbolName = symbol;
  data.correlationData = &shared;
  data.correlationId = ++correlation;
  fake_cupti_control()->call(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  result = body();
  data.callbackSite = CUPTI_API_EXIT;
  fake_cupti_control()->call(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  return result;
}

/// The scan that the injected library brings along, as PTX: a CPU cannot run it, but it can do the same.
void scan(void** arguments) {
  const auto& job = *static_cast<const ScanJob*>(arguments[0]);
  const auto* words = reinterpret_cast<const std::uint32_t*>(job.range.first_word() * 4);
  for (int pass = 0; pass < job.passes(); ++pass) {
    for (std::uint64_t i = 0; i < job.words(pass); ++i) job.look(job.scan->of(pass), words[i], i, pass);
  }
}

void report_kernel(const CUfunc_st& function, std::uint32_t id, unsigned grid, unsigned block) {
  CUpti_ActivityKernel10 record;
  std::memset(&record, 0, sizeof record);
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.correlationId = id;
  record.name = function.name.c_str();
  record.start = 1000 * id;
  record.end = 1000 * id + 500;
  record.gridX = static_cast<int>(grid);
  record.blockX = static_cast<int>(block);
  record.streamId = 7;
  fake_cupti_control()->report(&record, sizeof record, id);
}

void report_copy(std::size_t bytes, std::uint32_t id) {
  CUpti_ActivityMemcpy6 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  record.bytes = bytes;
  record.start = 1000 * id;
  record.end = 1000 * id + 10;
  record.correlationId = id;
  fake_cupti_control()->report(&record, sizeof record, id);
}

}  // namespace

extern "C" {

CUfunction fake_cuda_kernel(const char* name, FakeKernel code, const std::size_t* sizes, std::size_t count) {
  return new CUfunc_st{name, code, {sizes, sizes + count}};
}

CUresult cuInit(unsigned) {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return CUDA_SUCCESS;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return CUDA_SUCCESS;
  if (auto* start = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))) start();
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  return api(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{pointer, bytes}, nullptr, [&] {
    *pointer = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return *pointer == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return api(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{pointer}, nullptr, [&] {
    std::free(reinterpret_cast<void*>(pointer));
    return CUDA_SUCCESS;
  });
}
/// As if another thread were capturing all the time.
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (std::strstr(static_cast<const char*>(image), "nanscope_format_scan") == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(1);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  static const std::size_t sizes[] = {sizeof(ScanJob)};
  *function = fake_cuda_kernel(name, &scan, sizes, 1);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (index >= function->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (std::size_t i = 0; i < index; ++i) *offset += (function->sizes[i] + 7) / 8 * 8;
  *size = function->sizes[index];
  return CUDA_SUCCESS;
}
CUresult cuKernelGetParamInfo(CUkernel, std::size_t, std::size_t*, std::size_t*) { return CUDA_ERROR_INVALID_HANDLE; }
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
/// $FAKE_CUDA_HANG: a GPU that never ends.
CUresult cuStreamSynchronize(CUstream) {
  while (std::getenv("FAKE_CUDA_HANG") != nullptr) pause();
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream) {
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  report_copy(bytes, ++correlation);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void** arguments, void** extra) {
  const cuLaunchKernel_params params{f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra};
  return api(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, params, f->name.c_str(), [&] {
    const std::uint32_t id = correlation;
    f->code(arguments);
    report_kernel(*f, id, gx, bx);
    return CUDA_SUCCESS;
  });
}
}
