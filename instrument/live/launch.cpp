#include "instrument/live/launch.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace nanscope::live {

std::vector<PointerArgument> pointer_arguments(std::span<const Parameter> parameters, AllocationMap& allocations,
                                               std::uint64_t most_bytes) {
  std::vector<PointerArgument> found;
  for (const Parameter& parameter : parameters) {
    for (std::size_t offset = 0; offset + sizeof(std::uint64_t) <= parameter.bytes.size();
         offset += sizeof(std::uint64_t)) {
      std::uint64_t address = 0;
      std::memcpy(&address, parameter.bytes.data() + offset, sizeof address);
      const bool listed = std::any_of(found.begin(), found.end(),
                                      [&](const PointerArgument& one) { return one.extent.address == address; });
      if (listed || !allocations.find(address)) continue;
      found.push_back({parameter.index, static_cast<std::uint32_t>(offset), *allocations.piece(address)});
    }
  }
  // Only when all are known is it known where each ends.
  for (PointerArgument& one : found) {
    one.extent = *allocations.piece(one.extent.address);
    one.extent.bytes = std::min(one.extent.bytes, most_bytes);
  }
  return found;
}

std::string short_name(std::string_view name) {
  // A conversion operator's name and "(anonymous namespace)" hold brackets of their own.
  std::string text(name);
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at = text.find(kAnonymous); at != std::string::npos; at = text.find(kAnonymous)) {
    text.erase(at, kAnonymous.size());
  }
  const std::size_t end = text.find_first_of("<(");
  if (end != std::string::npos && end > 0) text.resize(end);
  const std::size_t begin = text.find_last_of(": ");
  if (begin != std::string::npos && begin + 1 < text.size()) text.erase(0, begin + 1);
  for (char& c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!plain) c = '_';
  }
  return text.empty() ? "kernel" : text;
}

}  // namespace nanscope::live
