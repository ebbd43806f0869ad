#pragma once
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

/// What was meant by a word that is none: for "did you mean".
namespace nanscope {

/// Levenshtein's distance, bytes as letters: how many are to be added, dropped or replaced; `most` where there are that
/// many or more. It takes the product of both lengths, or less where `most` ends it.
std::size_t edit_distance(std::string_view a, std::string_view b,
                          std::size_t most = std::numeric_limits<std::size_t>::max());

/// With the letters of ASCII in lower case.
std::string lower_case(std::string_view text);

}  // namespace nanscope
