#pragma once
#include <cstddef>
#include <string_view>

namespace nanscope {

/// Whether a text is UTF-8, as all names must be that are shown or written to JSON.
bool is_utf8(std::string_view text);

/// Bytes of the longest beginning of a text that is UTF-8.
std::size_t utf8_prefix(std::string_view text);

}  // namespace nanscope
