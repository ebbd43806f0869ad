#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

namespace {

constexpr std::array<std::size_t, 3> kAtOnce{2, 4, 8};
constexpr int kTogetherTokens = 24;

/// Requests of several lengths; the last are far from prose.
std::vector<Ask> others(const Study& study) {
  std::vector<Ask> asks{{.text = kShort, .ids = {}, .tokens = kTogetherTokens}};
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t end = study.long_text.find(' ', study.long_text.size() / (2 + i));
    asks.push_back(
        {.text = fmt::format("{}. {}", i, study.long_text.substr(0, end)), .ids = {}, .tokens = kTogetherTokens});
  }
  asks.push_back({.text = std::string(40, '!'), .ids = {}, .tokens = kTogetherTokens});
  asks.push_back({.text = "27182818284590452353602874713526624977572470936999", .ids = {}, .tokens = kTogetherTokens});
  return asks;
}

}  // namespace

/// Requests alone, and among growing numbers of others.
void together(Study& study) {
  const std::vector<Ask> asks = others(study);
  std::vector<Reply> alone;
  alone.reserve(asks.size());
  for (const Ask& ask : asks) alone.push_back(study.talk.ask(ask));
  std::vector<Difference> differences;
  for (const std::size_t count : kAtOnce) {
    const std::vector<Reply> replies = study.talk.together(std::span(asks).first(count));
    for (std::size_t i = 0; i < count; ++i) differences.push_back(compare(alone[i], replies[i]));
  }
  conclude(study, "together", "requests alone, and among others", differences);
  if (study.observations.back().state != State::broken) return;
  const bool nan = std::any_of(differences.begin(), differences.end(), [](const Difference& one) { return one.nan; });
  study.see(nan ? Sign::nan_together : Sign::together_differs, study.observations.back().summary);
}

}  // namespace nanscope::server_probe::experiment
