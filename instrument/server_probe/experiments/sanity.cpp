#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "instrument/server_probe/limits.h"
#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

/// What each answer shows by itself.
void sanity(Study& study) {
  std::int64_t answers = 0;
  std::int64_t nan = 0;
  std::int64_t spots = 0;
  for (const Exchange& one : study.talk.exchanges()) {
    if (one.body.empty()) continue;
    const Reply reply = read_reply(one.status, one.answer);
    if (!reply.answered() && !reply.says_nan) continue;
    ++answers;
    nan += from_nan(reply) ? 1 : 0;
    for (const Spot& spot : reply.spots) {
      if (spot.top.size() < 2 || std::isnan(spot.log_probability) || std::isnan(spot.top.front())) continue;
      ++spots;
      double mass = 0;
      for (const double chance : spot.top) mass += std::exp(chance);
      if (mass > kMostMass) study.see(Sign::mass, fmt::format("{:.4g} of the first {}", mass, spot.top.size()));
      if (spot.log_probability < spot.top.front() - study.limit()) {
        study.see(Sign::not_likeliest,
                  fmt::format("{:.3g} below the most likely one", spot.top.front() - spot.log_probability));
      }
    }
  }
  Observation seen{"sanity", State::held, {}};
  seen.compared = answers;
  const bool odd = study.saw(Sign::mass) || study.saw(Sign::not_likeliest);
  if (nan > 0 || odd) seen.state = State::broken;
  if (answers == 0) return study.not_asked("sanity", "no request was answered");
  seen.summary = fmt::format("{} of {} answers come from NaN", nan, answers);
  for (const Sign sign : {Sign::mass, Sign::not_likeliest}) {
    if (study.saw(sign)) seen.summary += fmt::format("; {}: {}", text(sign), study.signs[sign]);
  }
  if (spots == 0 && nan == 0) return study.not_asked("sanity", "the server tells no log probabilities");
  study.observations.push_back(std::move(seen));
}

}  // namespace nanscope::server_probe::experiment
