#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/live/allocation_map.h"

namespace nanscope::live {

/// One parameter of a kernel as it was launched: its bytes are the program's, valid during the call.
struct Parameter {
  int index = 0;
  std::span<const std::byte> bytes;
};

/// A kernel that the program launches.
struct Launch {
  std::int64_t number = 0;  ///< from 1, in the order of the calls
  std::string_view name;    ///< demangled; lives longer than what is made of the launch
  std::uint64_t stream = 0;
  /// Asked for only when the launch is looked at; what cannot be known is left out.
  std::function<std::vector<Parameter>()> parameters;
};

/// A pointer that a kernel was given. `offset` is within the parameter: structs hold several.
struct PointerArgument {
  int parameter = 0;
  std::uint32_t offset = 0;
  Extent extent;

  bool operator==(const PointerArgument&) const = default;
};

/// The pointers into tracked allocations among the parameters: every aligned word of 8 bytes that is the address of a
/// tracked byte. A number may look like one; the scan then reads memory that the kernel does not touch, and finds
/// nothing changed. Each address is listed once; an extent is cut at `most_bytes`.
std::vector<PointerArgument> pointer_arguments(std::span<const Parameter> parameters, AllocationMap& allocations,
                                               std::uint64_t most_bytes);

/// "void at::native::foo_kernel<4, X>(int)" as "foo_kernel".
std::string short_name(std::string_view name);

}  // namespace nanscope::live
