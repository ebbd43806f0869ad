#include "core/near.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/text/edit_distance.h"

namespace nanscope {
std::string near_names(const std::set<std::string>& names, const std::string& wanted, std::size_t most) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  const std::string lower = lower_case(wanted);
  for (const std::string& name : names) {
    const std::string other = lower_case(name);
    const bool contains = other.find(lower) != std::string::npos || lower.find(other) != std::string::npos;
    ranked.emplace_back(contains ? 0 : edit_distance(other, lower), name);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > most) ranked.resize(most);
  std::vector<std::string> quoted;
  quoted.reserve(ranked.size());
  for (const auto& [rank, name] : ranked) quoted.push_back("'" + name + "'");
  return fmt::format("{}", fmt::join(quoted, ", "));
}

}  // namespace nanscope
