#include "fake_cupti.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Fake {
  std::recursive_mutex mutex;
  CUptiResult answer = CUPTI_SUCCESS;
  std::string holder;
  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
  std::set<std::pair<int, std::uint32_t>> listened;
  std::set<int> kinds;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
  std::size_t dropped = 0;
  int held = 0;
};

Fake& fake() {
  static Fake instance;
  return instance;
}

thread_local std::vector<std::uint64_t> pushed;

/// Records are packed and padded to 8 bytes, each of its kind's size.
std::size_t size_of(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_MARKER:
      return sizeof(CUpti_ActivityMarker2);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return sizeof(CUpti_ActivityAPI);
    default:
      return 0;
  }
}

void hand_back() {
  Fake& f = fake();
  if (f.buffer == nullptr) return;
  std::uint8_t* buffer = std::exchange(f.buffer, nullptr);
  --f.held;
  f.complete(nullptr, 0, buffer, f.size, f.used);
}

void put(const void* record, std::size_t bytes) {
  Fake& f = fake();
  if (f.buffer != nullptr && f.used + bytes > f.size) hand_back();
  if (f.buffer == nullptr) {
    std::size_t most = 0;
    f.used = 0;
    f.request(&f.buffer, &f.size, &most);
    if (f.buffer == nullptr || f.size < bytes) {
      f.buffer = nullptr;
      ++f.dropped;
      return;
    }
    ++f.held;
  }
  std::memcpy(f.buffer + f.used, record, bytes);
  f.used += bytes;
}

bool wanted(int kind) { return fake().request != nullptr && fake().kinds.contains(kind); }

void report(const void* record, std::size_t bytes, std::uint32_t correlation) {
  const std::lock_guard lock(fake().mutex);
  if (correlation != 0 && !pushed.empty() && wanted(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
    CUpti_ActivityExternalCorrelation external{};
    external.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    external.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    external.externalId = pushed.back();
    external.correlationId = correlation;
    put(&external, sizeof external);
  }
  if (wanted(static_cast<const CUpti_Activity*>(record)->kind)) put(record, bytes);
}

const FakeCuptiControl kControl = {
    .reset =
        [] {
          Fake& f = fake();
          f.answer = CUPTI_SUCCESS;
          f.holder.clear();
          f.callback = nullptr;
          f.listened.clear();
          f.kinds.clear();
          f.request = nullptr;
          f.complete = nullptr;
          f.buffer = nullptr;
          f.dropped = 0;
          f.held = 0;
        },
    .hold = [](const char* name) { fake().holder = name == nullptr ? "" : name; },
    .answer = [](CUptiResult result) { fake().answer = result; },
    .report = &report,
    .lose = [](std::size_t records) { fake().dropped += records; },
    .call =
        [](CUpti_CallbackDomain domain, CUpti_CallbackId id, const CUpti_CallbackData* data) {
          const Fake& f = fake();
          if (f.callback != nullptr && f.listened.contains({domain, id})) f.callback(f.user, domain, id, data);
        },
    .enabled = [](CUpti_ActivityKind kind) { return fake().kinds.contains(kind) ? 1 : 0; },
    .subscribed = [] { return fake().callback != nullptr ? 1 : 0; },
    .buffers_held = [] { return fake().held; },
};

}  // namespace

extern "C" {

const FakeCuptiControl* fake_cupti_control() { return &kControl; }

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_UNKNOWN ? "CUPTI_ERROR_UNKNOWN" : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user) {
  Fake& f = fake();
  if (f.answer != CUPTI_SUCCESS) return f.answer;
  if (!f.holder.empty() || f.callback != nullptr) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  f.callback = callback;
  f.user = user;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&f);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user,
                              CUpti_SubscriberParams* params) {
  const CUptiResult result = cuptiSubscribe(handle, callback, user);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && params != nullptr) {
    std::strncpy(params->oldSubscriberName, fake().holder.c_str(), params->oldSubscriberSize);
  }
  return result;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  fake().callback = nullptr;
  fake().listened.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
  if (enable != 0) fake().listened.insert({domain, id});
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  fake().request = request;
  fake().complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (fake().answer != CUPTI_SUCCESS) return fake().answer;
  fake().kinds.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  fake().kinds.erase(kind);
  return CUPTI_SUCCESS;
}
/// Forced: also buffers that are not full.
/// Without force it returns buffers whose records are complete, as all are here.
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  const std::lock_guard lock(fake().mutex);
  hand_back();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<std::uint8_t*>(*record) + size_of(**record);
  if (next + sizeof(CUpti_ActivityKind) > buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return size_of(**record) == 0 ? CUPTI_ERROR_INVALID_KIND : CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = std::exchange(fake().dropped, std::size_t{0});
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t id) {
  pushed.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t* last) {
  if (pushed.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  *last = pushed.back();
  pushed.pop_back();
  return CUPTI_SUCCESS;
}
}
