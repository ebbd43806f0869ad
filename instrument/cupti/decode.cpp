#include "instrument/cupti/decode.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace nanscope::cupti {
namespace {

/// Only fields that have kept their place since CUDA 12.0 are read, so that an older library's records fit too.
template <class Record>
const Record& as(const CUpti_Activity* record) {
  return *reinterpret_cast<const Record*>(record);
}

std::string quoted(const char* text) {
  return nlohmann::json(text == nullptr ? "" : text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Activity work(std::string name, std::uint64_t start, std::uint64_t end, std::uint32_t correlation) {
  Activity activity;
  activity.row.name = std::move(name);
  activity.row.start_ns = static_cast<std::int64_t>(start);
  activity.row.duration_ns = end < start ? 0 : static_cast<std::int64_t>(end - start);
  activity.correlation = correlation;
  return activity;
}

template <class Record>
std::string place(const Record& r) {
  return fmt::format(R"("device":{},"context":{},"stream":{},"correlation":{})", std::uint32_t{r.deviceId},
                     std::uint32_t{r.contextId}, std::uint32_t{r.streamId}, std::uint32_t{r.correlationId});
}

/// Demangling takes longer than all else: records of a buffer name few kernels, by the same pointers.
class Names {
 public:
  const std::string& of(const char* symbol) {
    const auto known = known_.find(symbol);
    return known != known_.end() ? known->second : known_.emplace(symbol, demangled(symbol)).first->second;
  }

 private:
  std::unordered_map<const char*, std::string> known_;
};

Activity kernel(const CUpti_ActivityKernel10& r, Names& names) {
  Activity activity = work(names.of(r.name), r.start, r.end, r.correlationId);
  activity.row.details = fmt::format(
      R"({{"kind":"kernel","grid":[{},{},{}],"block":[{},{},{}],"registers":{},"shared_static":{},"shared_dynamic":{},)"
      R"({},"graph_node":{}}})",
      int{r.gridX}, int{r.gridY}, int{r.gridZ}, int{r.blockX}, int{r.blockY}, int{r.blockZ},
      std::uint16_t{r.registersPerThread}, int{r.staticSharedMemory}, int{r.dynamicSharedMemory}, place(r),
      std::uint64_t{r.graphNodeId});
  return activity;
}

/// As CUpti_ActivityMemcpyKind counts them.
constexpr std::array<std::string_view, 11> kCopies = {"unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                      "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
constexpr std::array<std::string_view, 5> kWaits = {"unknown", "event", "stream wait event", "stream", "context"};

template <std::size_t N>
std::string_view word(const std::array<std::string_view, N>& words, std::size_t index) {
  return words.at(index < N ? index : 0);
}

Activity copy(const CUpti_ActivityMemcpy6& r) {
  const std::string_view kind = word(kCopies, r.copyKind);
  Activity activity = work(fmt::format("memcpy {}", kind), r.start, r.end, r.correlationId);
  activity.row.details =
      fmt::format(R"({{"kind":"memcpy","copy":"{}","bytes":{},{}}})", kind, std::uint64_t{r.bytes}, place(r));
  return activity;
}

Activity fill(const CUpti_ActivityMemset4& r) {
  Activity activity = work("memset", r.start, r.end, r.correlationId);
  activity.row.details = fmt::format(R"({{"kind":"memset","value":{},"bytes":{},{}}})", std::uint32_t{r.value},
                                     std::uint64_t{r.bytes}, place(r));
  return activity;
}

Activity wait(const CUpti_ActivitySynchronization2& r) {
  const std::string_view type = word(kWaits, static_cast<std::size_t>(r.type));
  Activity activity = work(fmt::format("synchronize {}", type), r.start, r.end, r.correlationId);
  activity.row.details =
      fmt::format(R"({{"kind":"synchronization","type":"{}","context":{},"stream":{},"correlation":{}}})", type,
                  std::uint32_t{r.contextId}, std::uint32_t{r.streamId}, std::uint32_t{r.correlationId});
  return activity;
}

/// A range of NVTX is two records, begin and end, of one id.
Activity marker(const CUpti_ActivityMarker2& r) {
  const auto flags = static_cast<unsigned>(r.flags);
  const std::string_view edge = (flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0 ? "begin"
                                : (flags & CUPTI_ACTIVITY_FLAG_MARKER_END) != 0 ? "end"
                                                                                : "point";
  Activity activity = work(r.name == nullptr ? "" : r.name, r.timestamp, r.timestamp, 0);
  activity.row.details = fmt::format(R"({{"kind":"marker","edge":"{}","domain":{},"id":{}}})", edge, quoted(r.domain),
                                     std::uint32_t{r.id});
  return activity;
}

}  // namespace

std::string demangled(const char* symbol) {
  if (symbol == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : symbol;
}

void decode(const Api& api, std::uint8_t* buffer, std::size_t bytes, Decoded& into) {
  Names names;
  CUpti_Activity* record = nullptr;
  while (api.next_record(buffer, bytes, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        into.activities.push_back(kernel(as<CUpti_ActivityKernel10>(record), names));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        into.activities.push_back(copy(as<CUpti_ActivityMemcpy6>(record)));
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        into.activities.push_back(fill(as<CUpti_ActivityMemset4>(record)));
        break;
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        into.activities.push_back(wait(as<CUpti_ActivitySynchronization2>(record)));
        break;
      case CUPTI_ACTIVITY_KIND_MARKER:
        into.activities.push_back(marker(as<CUpti_ActivityMarker2>(record)));
        break;
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& external = as<CUpti_ActivityExternalCorrelation>(record);
        into.external.push_back({external.correlationId, external.externalId});
        break;
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
        break;  // asked for because external ids come with them
      default:
        ++into.unknown;
    }
  }
}

}  // namespace nanscope::cupti
