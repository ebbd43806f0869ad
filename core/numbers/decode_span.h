#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/numbers/format.h"

namespace nanscope {

/// Values of all 256 bytes as codes of a format of at most eight bits; unused bits are passed over.
std::span<const float, 256> code_values(Format format);

/// Values of `to.size()` codes of storage_bytes() each, little-endian. `from` holds at least those.
void decode(Format format, std::span<const std::byte> from, std::span<float> to);

}  // namespace nanscope
