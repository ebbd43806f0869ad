#pragma once
#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/recording/rows.h"
#include "instrument/cupti/api.h"

/// CUPTI's records as rows. The one place that knows their layouts, which change with CUDA's versions.
namespace nanscope::cupti {

/// One piece of GPU work, or a point that the program marked. `row.op` is still 0.
struct Activity {
  KernelRow row;
  std::uint32_t correlation = 0;  ///< of the API call that caused it; 0: of none
};

/// Whose API calls CUPTI's correlation ids are: pairs of correlation and external id.
struct ExternalId {
  std::uint32_t correlation = 0;
  std::uint64_t id = 0;
};

struct Decoded {
  std::vector<Activity> activities;
  std::vector<ExternalId> external;
  std::int64_t unknown = 0;  ///< records of kinds that were not asked for
};

/// A kernel's name as its source has it: a mangled C++ symbol undone, another as it is, "kernel" for null.
std::string demangled(const char* symbol);

/// Appends the records of `buffer`, of which `bytes` are valid. Names are copied: CUPTI's may go with the buffer.
/// Details are JSON: {"kind": "kernel", "grid": [x,y,z], "block": [x,y,z], "registers", "shared_static",
/// "shared_dynamic", "device", "context", "stream", "correlation", "graph_node"}; of copies "copy" and "bytes", of
/// fills "value" and "bytes", of synchronisation "type", of markers "edge" (begin, end, point), "domain" and "id".
void decode(const Api& api, std::uint8_t* buffer, std::size_t bytes, Decoded& into);

}  // namespace nanscope::cupti
