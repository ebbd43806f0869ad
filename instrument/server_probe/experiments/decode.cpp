#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "instrument/server_probe/limits.h"
#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

namespace {

constexpr std::int64_t kWanted = 160;  // tokens of the long text
constexpr std::int64_t kRoom = 24;     // that its answers take
constexpr int kDecodeTokens = 12;

/// Cuts the long text until it fits, and learns its tokens.
void fit_long_text(Study& study) {
  study.long_text = kLong;
  for (int attempt = 0; attempt < 5 && !study.talk.over(); ++attempt) {
    const Reply reply = study.talk.ask({.text = study.long_text, .ids = {}, .tokens = 1});
    const bool fits =
        study.talk.abilities().longest == 0 || reply.prompt_tokens + kRoom <= study.talk.abilities().longest;
    if (reply.answered() && fits && reply.prompt_tokens <= 4 * kWanted) {
      study.tokens = reply.prompt_ids;
      break;
    }
    if (from_nan(reply)) break;
    study.long_text.resize(study.long_text.rfind(' ', study.long_text.size() / 2));
  }
  if (std::ssize(study.tokens) > kWanted) study.tokens.resize(static_cast<std::size_t>(kWanted));
}

/// The spacing that all differences between the most likely tokens of a position are multiples of.
double find_grid(const Reply& reply) {
  constexpr std::array kSpacings{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625};
  constexpr double kExact = 2e-5;  // what printing a log probability in f32 may lose
  for (const double spacing : kSpacings) {
    bool all = true;
    int counted = 0;
    for (const Spot& spot : reply.spots) {
      for (std::size_t i = 1; i < spot.top.size(); ++i) {
        const double gap = spot.top[i - 1] - spot.top[i];
        if (!std::isfinite(gap)) continue;
        ++counted;
        all = all && std::abs(gap / spacing - std::round(gap / spacing)) * spacing < kExact;
      }
    }
    if (counted >= 16 && all) return spacing;
  }
  return 0;
}

/// Where the NaN of a prompt begins.
void see_nan(Study& study, const Reply& reply, std::string_view what) {
  if (reply.says_nan) return study.see(Sign::nan_in_prompt, std::string(what));
  if (!reply.nan_in_prompt()) return;
  std::size_t first = 0;
  while (first < reply.prompt.size() && !(reply.prompt[first] && std::isnan(reply.prompt[first]->log_probability)))
    ++first;
  study.see(Sign::nan_in_prompt, fmt::format("{}, from token {} on", what, first));
  study.see(first <= 2 ? Sign::nan_from_start : Sign::nan_later, fmt::format("{}, token {}", what, first));
}

}  // namespace

/// Each token of an answer: as it was generated, and as the first token behind the prompt with the tokens before it.
/// No token has later ones in either.
void decode(Study& study) {
  fit_long_text(study);
  const bool can = study.talk.abilities().token_ids;
  std::vector<Difference> differences;
  std::vector<double> gaps;
  const std::array<Ask, 2> asks{Ask{.text = kShort, .ids = {}, .tokens = kDecodeTokens},
                                Ask{.text = study.long_text, .ids = study.tokens, .tokens = kDecodeTokens}};
  for (const Ask& ask : asks) {
    const Reply made = study.talk.ask(ask);
    study.grid = std::max(study.grid, find_grid(made));
    const bool is_long = &ask == &asks.back();
    if (is_long && from_nan(made) && !from_nan(study.first())) study.see(Sign::nan_in_long, "the long text");
    if (!can || !made.answered() || made.ids.empty()) continue;
    std::vector<std::int32_t> all = made.prompt_ids;
    Reply computed;
    for (std::size_t i = 0; i < std::min(made.ids.size(), made.spots.size()) && !study.talk.over(); ++i) {
      const Reply next = study.talk.ask({.text = {}, .ids = all, .tokens = 1});
      all.push_back(made.ids[i]);
      if (!next.answered() || next.spots.empty()) break;
      computed.spots.push_back(next.spots.front());
      // A tie may choose another token: only what follows is another text then.
      if (next.ids.empty() || next.ids.front() != made.ids[i]) break;
    }
    differences.push_back(compare(made, computed));
    gaps.insert(gaps.end(), differences.back().all.begin(), differences.back().all.end());
    if (study.talk.abilities().prompt_log_probabilities) {
      see_nan(study, study.talk.ask({.text = {}, .ids = all, .tokens = 1, .of_prompt = true}),
              is_long ? "the long text" : "a short text");
    }
  }
  if (!can) return study.not_asked("decode", "the server tells no token ids");
  const double typical = median(gaps);
  if (gaps.size() >= kFewestGaps && typical <= kGlobalGap) study.resolution = typical;
  conclude(study, "decode", "each token as it was generated, and behind a prompt with the tokens before it",
           differences);
  Observation& seen = study.observations.back();
  if (seen.state == State::held && typical > kGlobalGap) seen.state = State::broken;
  if (seen.state == State::broken) study.see(Sign::decode_differs, seen.summary);
  if (seen.state == State::held) study.largest = seen.largest;
}

}  // namespace nanscope::server_probe::experiment
