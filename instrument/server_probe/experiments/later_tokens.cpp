#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "instrument/server_probe/limits.h"
#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

namespace {

/// Lengths at which blocks, chunks and windows end, and their neighbours.
constexpr std::array<std::size_t, 14> kLengths{7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 129};

struct Reach {
  std::size_t first = 0;  ///< earliest token that differs
  std::size_t length = 0;
};

/// How far back later tokens reach.
void see_reach(Study& study, const std::vector<Reach>& reaches) {
  std::size_t farthest = 0;
  bool far = false;
  // Whether only the block that the prompt ends in is touched, and is not the whole prompt.
  bool blocks = std::any_of(reaches.begin(), reaches.end(), [](const Reach& one) { return one.first >= kBlock; });
  for (const Reach& one : reaches) {
    farthest = std::max(farthest, one.length - one.first);
    far = far || (one.length > 2 * kBlock && one.first <= 2);
    blocks = blocks && one.first >= (one.length - 1) / kBlock * kBlock;
  }
  const std::string where = fmt::format("up to {} token{} back", farthest, farthest == 1 ? "" : "s");
  study.see(farthest <= 1 ? Sign::leak_next : far ? Sign::leak_far : Sign::leak_near, where);
  if (blocks && farthest > 1) study.see(Sign::leak_in_blocks, where);
}

/// The noise of one kernel at two lengths: of tokens far from where the shorter prompt ends.
double noise_of_lengths(const std::vector<Reply>& parts, const Reply& whole) {
  double largest = 0;
  for (const Reply& part : parts) {
    if (part.prompt.size() <= kBlock) continue;
    largest = std::max(largest, compare_prompts(part, whole, 1, part.prompt.size() - kBlock).largest);
  }
  return largest;
}

}  // namespace

/// Log probabilities of a prompt's tokens, with and without what follows them: no token may depend on later ones.
void later_tokens(Study& study) {
  const Abilities& abilities = study.talk.abilities();
  if (!abilities.prompt_log_probabilities || study.tokens.size() < 32) {
    return study.not_asked("later-tokens", abilities.prompt_log_probabilities
                                               ? "the server tells no token ids, or takes no prompt of 32 tokens"
                                               : "the server tells no log probabilities of a prompt");
  }
  const auto read = [&](std::size_t length) {
    const std::vector<std::int32_t> ids(study.tokens.begin(),
                                        study.tokens.begin() + static_cast<std::ptrdiff_t>(length));
    return study.talk.ask({.text = {}, .ids = ids, .tokens = 1, .of_prompt = true});
  };
  const Reply whole = read(study.tokens.size());
  std::vector<Reply> parts;
  for (const std::size_t length : kLengths) {
    if (length < study.tokens.size() && !study.talk.over()) parts.push_back(read(length));
  }
  // What reaches all tokens is no noise of lengths; it has to be larger than that of other kernels.
  const double of_lengths = kTimesLargest * std::max(noise_of_lengths(parts, whole), study.grid);
  const double limit = std::min(std::max(of_lengths, kLeastLeak), std::max(study.limit(), kUnmeasured));
  std::vector<Difference> differences;
  std::vector<Reach> reaches;
  for (const Reply& part : parts) {
    const std::size_t length = part.prompt.size();
    differences.push_back(compare_prompts(part, whole, 1, length));
    if (!differs(differences.back(), limit)) continue;
    std::size_t first = 1;
    while (first < length && !differs(compare_prompts(part, whole, first, first + 1), limit)) ++first;
    reaches.push_back({first, length});
  }
  conclude(study, "later-tokens", "the tokens of a prompt, with and without what follows them", differences, limit);
  if (study.observations.back().state == State::broken && !reaches.empty()) see_reach(study, reaches);
}

}  // namespace nanscope::server_probe::experiment
