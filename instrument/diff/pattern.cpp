#include "instrument/diff/pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace nanscope::align {
namespace {

constexpr std::size_t kMostPhases = 16;   ///< of a period that is looked for: a sentence lists them
constexpr std::int64_t kFewestTurns = 3;  ///< of a period

double log_choose(double n, double k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); }

/// ln of the chance that `marked` places drawn of `all` all lie among `within` of them.
double log_chance(std::size_t all, std::size_t within, std::size_t marked) {
  return log_choose(static_cast<double>(within), static_cast<double>(marked)) -
         log_choose(static_cast<double>(all), static_cast<double>(marked));
}

std::int64_t phase_of(std::int64_t place, std::int64_t period) { return place % period; }

/// All marked places have one of a few phases.
std::optional<RowPattern> of_period(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& marked,
                                    std::int64_t period) {
  std::set<std::int64_t> phases;
  for (const std::int64_t place : marked) {
    phases.insert(phase_of(place, period));
    if (phases.size() > kMostPhases) return std::nullopt;
  }
  // Each phase comes again and again.
  if (marked.size() < phases.size() * static_cast<std::size_t>(kFewestTurns)) return std::nullopt;
  const auto within = static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](std::int64_t at) { return phases.contains(phase_of(at, period)); }));
  // Phases that cover all there is say nothing.
  if (within == all.size() || 2 * phases.size() > static_cast<std::size_t>(period)) return std::nullopt;
  // Periods up to this one, each with as many choices of phases.
  const double tried = std::log(static_cast<double>(period)) +
                       log_choose(static_cast<double>(period), static_cast<double>(phases.size()));
  RowPattern made;
  made.kind = RowPattern::Kind::period;
  made.period = period;
  made.phases.assign(phases.begin(), phases.end());
  made.chance = std::exp(std::min(0.0, log_chance(all.size(), within, marked.size()) + tried));
  return made;
}

std::optional<RowPattern> of_range(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& marked) {
  const auto within = static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [&](std::int64_t at) { return at >= marked.front() && at <= marked.back(); }));
  if (within == all.size()) return std::nullopt;
  const double ends = 2 * std::log(static_cast<double>(all.size()));
  RowPattern made;
  made.first = marked.front();
  made.last = marked.back();
  made.to_end = marked.back() == all.back();
  made.chance = std::exp(std::min(0.0, log_chance(all.size(), within, marked.size()) + ends));
  return made;
}

std::string ordinal(std::int64_t n) {
  const std::int64_t tens = n % 100;
  const char* end = tens >= 11 && tens <= 13 ? "th"
                    : n % 10 == 1            ? "st"
                    : n % 10 == 2            ? "nd"
                    : n % 10 == 3            ? "rd"
                                             : "th";
  return fmt::format("{}{}", n, end);
}

}  // namespace

std::optional<RowPattern> find_pattern(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& marked) {
  if (marked.size() < static_cast<std::size_t>(kFewestTurns) || marked.size() == all.size()) return std::nullopt;
  std::optional<RowPattern> best = of_range(all, marked);
  const std::int64_t length = all.back() - all.front() + 1;
  for (std::int64_t period = 2; period * kFewestTurns <= length; ++period) {
    const std::optional<RowPattern> one = of_period(all, marked, period);
    if (one && (!best || one->chance < best->chance)) best = one;
  }
  return best && best->chance < kPatternChance ? best : std::nullopt;
}

std::string text(const RowPattern& pattern) {
  if (pattern.kind == RowPattern::Kind::period) {
    return fmt::format("every {}, phase {}", ordinal(pattern.period), fmt::join(pattern.phases, ", "));
  }
  return pattern.to_end ? fmt::format("from {} on", pattern.first)
                        : fmt::format("from {} to {}", pattern.first, pattern.last);
}

}  // namespace nanscope::align
