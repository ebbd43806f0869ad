#pragma once
#include <concepts>
#include <string>
#include <string_view>

namespace nanscope {

/// "1 token", "3 tokens": for nouns whose plural takes an s.
std::string counted(std::integral auto count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace nanscope
