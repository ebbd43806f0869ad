#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Bytes as text, RFC 4648 section 4.
namespace nanscope {

std::string to_base64(std::span<const std::byte> bytes);

/// Nothing when `text` is not base64: a foreign character, or no multiple of four.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace nanscope
