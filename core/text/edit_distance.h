#pragma once
#include <cstddef>
#include <string>
#include <string_view>

/// What was meant by a word that is none: for "did you mean".
namespace nanscope {

/// Levenshtein's distance, bytes as letters: how many are to be added, dropped or replaced. It takes the product of
/// both lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// With the letters of ASCII in lower case.
std::string lower_case(std::string_view text);

}  // namespace nanscope
