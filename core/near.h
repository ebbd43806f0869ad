#pragma once
#include <cstddef>
#include <set>
#include <string>

namespace nanscope {

/// The few of `names` that come nearest to `wanted`, quoted, with commas between: for what an error says after "near:".
std::string near_names(const std::set<std::string>& names, const std::string& wanted, std::size_t most);

}  // namespace nanscope
