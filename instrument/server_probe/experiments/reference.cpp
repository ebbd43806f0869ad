#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "instrument/server_probe/limits.h"
#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

/// Log probabilities of the same tokens by another server.
void reference(Study& study) {
  if (study.reference == nullptr) return;
  if (!study.talk.abilities().prompt_log_probabilities || !study.reference->abilities().prompt_log_probabilities ||
      study.tokens.empty()) {
    return study.not_asked("reference", "one of the servers tells no log probabilities of a prompt, or no token ids");
  }
  const Ask ask{.text = {}, .ids = study.tokens, .tokens = 1, .of_prompt = true};
  const Reply own = study.talk.ask(ask);
  const Reply other = study.reference->ask(ask);
  const std::vector<Difference> differences{compare_prompts(own, other, 1, own.prompt.size())};
  // Two engines differ by more than two kernels of one.
  const double limit = std::max(study.limit(), kGlobalGap);
  conclude(study, "reference", "a text as the server and as the reference reads it", differences);
  Observation& seen = study.observations.back();
  if (seen.state == State::not_asked) return;
  const bool broken = differs(differences.front(), kMostGap) || median(differences.front().all) > limit;
  seen.state = broken ? State::broken : State::held;
  seen.limit = kMostGap;
  seen.summary = fmt::format(
      "a text as the server and as the reference reads it: {} at most, {:.3g} typically ({} tokens, noise "
      "up to {:.3g})",
      differences.front().nan ? "NaN in one alone" : fmt::format("log probabilities differ by {:.3g}", seen.largest),
      median(differences.front().all), seen.compared, kMostGap);
  if (!broken) return;
  std::size_t first = 1;
  while (first < own.prompt.size() && !differs(compare_prompts(own, other, first, first + 1), limit)) ++first;
  study.see(Sign::reference_differs, seen.summary);
  study.see(first <= 4 ? Sign::reference_from_start : Sign::reference_later, fmt::format("from token {} on", first));
}

}  // namespace nanscope::server_probe::experiment
