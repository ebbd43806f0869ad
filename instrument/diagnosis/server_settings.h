#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/run/op_kind.h"

namespace nanscope {

/// A setting of a server that avoids a fault, as its command line or configuration file takes it.
struct ServerSetting {
  std::string server;   ///< "vLLM"
  std::string setting;  ///< "--kv-cache-dtype auto"
};

/// Settings that avoid a class of faults which began at an op of that kind; none where the servers have none.
std::vector<ServerSetting> server_settings(std::string_view fault_class, OpKind kind);

}  // namespace nanscope
