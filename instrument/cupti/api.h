#pragma once
#include <cupti.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

/// CUPTI's functions, looked up when they are wanted: nothing that nanscope builds needs CUPTI to be installed.
namespace nanscope::cupti {

struct Api {
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiSubscribe_v2) subscribe_v2 = nullptr;  ///< null before CUDA 12.8
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_external = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_external = nullptr;
  std::uint32_t version = 0;  ///< as cuptiGetVersion() says

  /// Opens `library`, or where it is empty what $NANSCOPE_CUPTI names, or libcupti of CUDA 13 or 12. It stays open:
  /// CUPTI cannot be unloaded. Errors: none is found, one lacks a function, it is older than CUDA 12.0.
  static Result<std::shared_ptr<const Api>> load(const std::string& library = {});
};

/// One line: what failed, CUPTI's name of the error, and what to do about it.
Status checked(const Api& api, CUptiResult result, std::string_view what);

}  // namespace nanscope::cupti
