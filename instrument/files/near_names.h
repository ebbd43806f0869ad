#pragma once
#include <span>
#include <string>
#include <string_view>

namespace nanscope {

/// The candidate that a mistyped word comes nearest to, in whatever case, or the only one that begins it or that it
/// begins; null where none is near.
const std::string* nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'x'?" for nearest(), else "; known: a, b, c" when they are
/// few, else nothing. To be put behind "unknown ...".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace nanscope
