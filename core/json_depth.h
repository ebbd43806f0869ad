#pragma once
#include <cstddef>
#include <string_view>

namespace nanscope {

/// What JSON in a file of ours may be nested: readers copy and print trees by recursion.
inline constexpr std::size_t kMostJsonDepth = 64;

/// Calls `visit` with each character of a JSON text that stands in none of its strings, well-formed or not.
template <class Visit>
void outside_strings(std::string_view text, const Visit& visit) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else {
      visit(c);
    }
  }
}

/// How deeply lists and objects of a JSON text stand in each other, whether or not it is well-formed.
inline std::size_t json_depth(std::string_view text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  outside_strings(text, [&](char c) {
    if (c == '[' || c == '{') {
      if (++depth > deepest) deepest = depth;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  });
  return deepest;
}

}  // namespace nanscope
