#include "core/near.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace nanscope {
namespace {

/// Levenshtein distance, for "did you mean".
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string near_names(const std::set<std::string>& names, const std::string& wanted, std::size_t most) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const bool contains = name.find(wanted) != std::string::npos || wanted.find(name) != std::string::npos;
    ranked.emplace_back(contains ? 0 : distance(name, wanted), name);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > most) ranked.resize(most);
  std::vector<std::string> quoted;
  quoted.reserve(ranked.size());
  for (const auto& [rank, name] : ranked) quoted.push_back("'" + name + "'");
  return fmt::format("{}", fmt::join(quoted, ", "));
}

}  // namespace nanscope
