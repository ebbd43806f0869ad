#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/result.h"

namespace nanscope {

/// Parses one JSON text (RFC 8259) that was written by somebody else: keys that occur twice, depth beyond
/// 32, NaN and Infinity, and anything behind the value are refused. `offset` is where the text begins in
/// `file`, for errors.
Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view file, std::uint64_t offset);

/// A whole number from 0 to 2^63 - 1; nothing for any other value.
std::optional<std::int64_t> json_natural(const nlohmann::json& value);

}  // namespace nanscope
