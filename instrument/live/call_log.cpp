#include "instrument/live/call_log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "instrument/live/launch.h"

namespace nanscope::live {

const KernelName& CallLog::named(const char* symbol) {
  const char* const text = symbol == nullptr ? "" : symbol;
  const auto known = by_address_.find(symbol);
  if (known != by_address_.end() && known->second->symbol == text) return *known->second;
  auto found = names_.find(text);
  if (found == names_.end()) {
    auto name = std::make_unique<KernelName>();
    name->symbol = text;
    name->demangled = demangle_(symbol);
    name->short_name = short_name(name->demangled);
    name->json = nlohmann::json(name->demangled).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    found = names_.emplace(name->symbol, std::move(name)).first;
  }
  by_address_[symbol] = found->second.get();
  return *found->second;
}

void CallLog::push(const Call& call) {
  if (calls_.size() < most_) {
    calls_.push_back(call);
  } else {
    ++lost_;
  }
}

const KernelName& CallLog::add_kernel(const char* symbol, Call call) {
  const std::lock_guard lock(mutex_);
  const KernelName& name = named(symbol);
  call.kernel = &name;
  push(call);
  return name;
}

void CallLog::add_graph(const Call& call) {
  const std::lock_guard lock(mutex_);
  push(call);
}

void CallLog::take(std::vector<Call>& calls) {
  calls.clear();
  const std::lock_guard lock(mutex_);
  calls_.swap(calls);
}

std::int64_t CallLog::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::string attributes(const Call& call) {
  const std::string stream = fmt::format(R"("stream":"{:#x}")", call.stream);
  if (call.kernel == nullptr) return "{" + stream + "}";
  return fmt::format(R"({{"symbol":{},"grid":[{},{},{}],"block":[{},{},{}],"shared":{},{}}})", call.kernel->json,
                     call.grid[0], call.grid[1], call.grid[2], call.block[0], call.block[1], call.block[2], call.shared,
                     stream);
}

}  // namespace nanscope::live
