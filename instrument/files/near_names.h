#pragma once
#include <span>
#include <string>
#include <string_view>

namespace nanscope {

/// "; did you mean 'x'?" for the candidate nearest to `word`, else "; known: a, b, c" when they are
/// few, else nothing. To be put behind "unknown ...".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace nanscope
