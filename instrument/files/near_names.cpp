#include "instrument/files/near_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "core/text/edit_distance.h"

namespace nanscope {

namespace {

constexpr std::size_t kListAtMost = 12;
constexpr std::size_t kLongest = 64;
/// Fewer letters begin too many names.
constexpr std::size_t kLeastBeginning = 4;

/// The only candidate that begins so, or that the word begins with.
const std::string* begun_by(const std::string& word, std::span<const std::string> candidates) {
  const std::string* found = nullptr;
  for (const std::string& candidate : candidates) {
    const std::string other = lower_case(candidate);
    const bool begins = word.size() >= kLeastBeginning && other.starts_with(word);
    const bool begun = other.size() >= kLeastBeginning && word.starts_with(other);
    if (!begins && !begun) continue;
    if (found != nullptr) return nullptr;
    found = &candidate;
  }
  return found;
}

}  // namespace

const std::string* nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string lower = lower_case(word.substr(0, kLongest));
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(lower, lower_case(candidate), best_distance);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best != nullptr ? best : begun_by(lower, candidates);
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  if (const std::string* best = nearest(word, candidates)) return fmt::format("; did you mean '{}'?", *best);
  if (!candidates.empty() && candidates.size() <= kListAtMost) {
    return fmt::format("; known: {}", fmt::join(candidates, ", "));
  }
  return {};
}

}  // namespace nanscope
