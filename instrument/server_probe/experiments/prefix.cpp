#include <fmt/format.h>

#include <string>
#include <vector>

#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

namespace {
constexpr int kPrefixTokens = 8;
}

/// The same long prompt: new, and from the prefix cache.
void prefix(Study& study) {
  const Abilities& abilities = study.talk.abilities();
  std::vector<Difference> differences;
  bool cached = false;
  const auto asked = [&](const std::string& text, bool anew) {
    return study.talk.ask({.text = text, .ids = {}, .tokens = kPrefixTokens, .of_prompt = anew});
  };
  // A beginning that no request had before, and the text in halves, so that its blocks are met at two lengths.
  const std::string text = "Chapter nine. " + study.long_text.substr(0, study.long_text.size() * 3 / 4);
  const std::string longer = text + " After that it rained.";
  const Reply fresh = asked(text, false);
  const Reply again = asked(text, false);
  differences.push_back(compare(fresh, again));
  const Reply behind = asked(longer, false);
  cached = again.cached > 0 || behind.cached > 0;
  if (abilities.prompt_log_probabilities) differences.push_back(compare(asked(longer, true), behind));
  conclude(study, "prefix", "a prompt computed anew, and from the prefix cache", differences);
  Observation& seen = study.observations.back();
  if (seen.state == State::broken) study.see(Sign::cached_differs, seen.summary);
  if (seen.state == State::held && !cached) {
    seen.summary +=
        again.cached < 0 ? "; the server does not say whether its cache was used" : "; its cache was not used";
  }
}

}  // namespace nanscope::server_probe::experiment
