#include "instrument/cupti/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <vector>

namespace nanscope::cupti {
namespace {

/// CUDA 12.0. Its records are prefixes of those of CUDA 13, whose fields decode.cpp reads.
constexpr std::uint32_t kOldest = 19;

std::vector<std::string> candidates(const std::string& library) {
  if (!library.empty()) return {library};
  const char* named = std::getenv("NANSCOPE_CUPTI");  // NOLINT(concurrency-mt-unsafe): nobody sets it meanwhile
  if (named != nullptr && *named != '\0') return {named};
  return {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
}

/// `optional` ones stay null where the library has none.
template <class Function>
bool look_up(void* library, const char* name, Function& function, std::string& missing, bool optional = false) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && !optional && missing.empty()) missing = name;
  return function != nullptr;
}

std::string_view remedy(CUptiResult result) {
  switch (static_cast<int>(result)) {
    case CUPTI_ERROR_UNKNOWN:
    case CUPTI_ERROR_NOT_INITIALIZED:
      return "no NVIDIA driver answers: check it with nvidia-smi";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "the driver allows profiling to its administrator alone: see NVIDIA's ERR_NVGPUCTRPERM";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "another tool holds CUPTI in this process: end torch.profiler, Nsight or cuda-gdb first";
    case CUPTI_ERROR_NOT_SUPPORTED:
    case CUPTI_ERROR_NOT_COMPATIBLE:
      return "this GPU or driver does not support it";
    default:
      return "run without tracing";
  }
}

}  // namespace

Result<std::shared_ptr<const Api>> Api::load(const std::string& library) {
  const std::vector<std::string> names = candidates(library);
  void* handle = nullptr;
  std::string reason;
  for (const std::string& name : names) {
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    const char* said = dlerror();
    if (reason.empty() && said != nullptr) reason = said;
  }
  if (handle == nullptr) {
    return fail(fmt::format("cupti: {}; install the CUDA toolkit's CUPTI or name it in NANSCOPE_CUPTI", reason));
  }
  auto api = std::make_shared<Api>();
  std::string missing;
  look_up(handle, "cuptiGetVersion", api->get_version, missing);
  look_up(handle, "cuptiGetResultString", api->result_string, missing);
  look_up(handle, "cuptiSubscribe", api->subscribe, missing);
  look_up(handle, "cuptiSubscribe_v2", api->subscribe_v2, missing, true);
  look_up(handle, "cuptiUnsubscribe", api->unsubscribe, missing);
  look_up(handle, "cuptiEnableCallback", api->enable_callback, missing);
  look_up(handle, "cuptiActivityRegisterCallbacks", api->register_callbacks, missing);
  look_up(handle, "cuptiActivityEnable", api->enable, missing);
  look_up(handle, "cuptiActivityDisable", api->disable, missing);
  look_up(handle, "cuptiActivityFlushAll", api->flush_all, missing);
  look_up(handle, "cuptiActivityGetNextRecord", api->next_record, missing);
  look_up(handle, "cuptiActivityGetNumDroppedRecords", api->dropped_records, missing);
  look_up(handle, "cuptiActivityPushExternalCorrelationId", api->push_external, missing);
  look_up(handle, "cuptiActivityPopExternalCorrelationId", api->pop_external, missing);
  if (!missing.empty()) return fail(fmt::format("cupti: the library has no {}; it is not CUPTI of CUDA 12", missing));
  if (api->get_version(&api->version) != CUPTI_SUCCESS || api->version < kOldest) {
    return fail(fmt::format("cupti: version {} is too old, expected {} (CUDA 12.0) or later", api->version, kOldest));
  }
  return api;
}

Status checked(const Api& api, CUptiResult result, std::string_view what) {
  if (result == CUPTI_SUCCESS) return {};
  const char* name = nullptr;
  if (api.result_string(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown error";
  return fail(fmt::format("cupti: {} failed: {} ({}); {}", what, name, static_cast<int>(result), remedy(result)));
}

}  // namespace nanscope::cupti
