#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "instrument/server_probe/limits.h"
#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

namespace {

constexpr int kPlainTokens = 12;
constexpr int kWideTokens = 4;

std::string times(std::string_view text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

struct Wide {
  std::string_view what;
  Ask ask;
};

/// Content whose activations are far from those of prose.
std::vector<Wide> wide_content(const Study& study) {
  std::vector<Wide> all;
  all.push_back({"a repeated character", {.text = times("!", 48), .ids = {}}});
  all.push_back(
      {"long digits", {.text = "31415926535897932384626433832795028841971693993751058209749445923", .ids = {}}});
  all.push_back(
      {"rare characters",
       {.text = "\u0489\u2603\u05d0\u0f3a \u16a0\u4e02 \u2620\ufe0f\u200d ~~`^^| %%&& \u00bf\u00a7", .ids = {}}});
  all.push_back({"one word many times", {.text = times(" the", 40), .ids = {}}});
  if (!study.tokens.empty()) {
    std::vector<std::int32_t> low(24);
    std::iota(low.begin(), low.end(), 0);
    all.push_back({"the first ids of the vocabulary", {.text = {}, .ids = low}});
  }
  if (study.talk.abilities().images) {
    all.push_back({"a picture with a bright patch", {.text = " shows the", .ids = {}, .image = true}});
    all.push_back({"the same picture again", {.text = " guides ships, and the ships bring", .ids = {}, .image = true}});
  }
  return all;
}

struct Plain {
  Reply text;
  Reply prompt;  ///< computed anew
};

Plain ask_plain(Study& study) {
  Plain plain;
  plain.text = study.talk.ask({.text = kShort, .ids = {}, .tokens = kPlainTokens});
  if (study.talk.abilities().prompt_log_probabilities && !study.tokens.empty()) {
    plain.prompt = study.talk.ask({.text = {}, .ids = study.tokens, .tokens = 1, .of_prompt = true});
  }
  return plain;
}

std::vector<Difference> compare_plain(const Plain& before, const Plain& after) {
  std::vector<Difference> all{compare(before.text, after.text)};
  if (!after.prompt.prompt.empty())
    all.push_back(compare_prompts(before.prompt, after.prompt, 1, before.prompt.prompt.size()));
  return all;
}

bool any_differs(const std::vector<Difference>& all, double limit) {
  return std::any_of(all.begin(), all.end(), [&](const Difference& one) { return differs(one, limit); });
}

struct Seen {
  Plain before;
  Plain last;
  std::vector<Difference> plain;         ///< of plain requests, each to the first
  std::vector<Difference> at_end;        ///< those of the last ones
  std::vector<Difference> of_reference;  ///< of wide content
  std::string first;                     ///< content after which plain requests differ
  std::string nan;                       ///< content that was answered from NaN
};

Seen ask_all(Study& study) {
  Seen seen;
  seen.before = ask_plain(study);
  for (const Wide& content : wide_content(study)) {
    if (study.talk.over()) break;
    Ask ask = content.ask;
    ask.tokens = kWideTokens;
    const Reply reply = study.talk.ask(ask);
    if (from_nan(reply) && seen.nan.empty()) seen.nan = content.what;
    if (study.reference != nullptr) seen.of_reference.push_back(compare(reply, study.reference->ask(ask)));
    const auto more = compare_plain(seen.before, ask_plain(study));
    if (seen.first.empty() && any_differs(more, study.limit())) seen.first = content.what;
    seen.plain.insert(seen.plain.end(), more.begin(), more.end());
  }
  seen.last = ask_plain(study);
  seen.at_end = compare_plain(seen.before, seen.last);
  seen.plain.insert(seen.plain.end(), seen.at_end.begin(), seen.at_end.end());
  return seen;
}

/// What plain requests became.
void see_plain(Study& study, const Seen& seen) {
  const bool was_nan = from_nan(seen.before.text) || from_nan(seen.before.prompt);
  const bool nan = std::any_of(seen.plain.begin(), seen.plain.end(), [](const Difference& one) { return one.nan; });
  if (study.observations.back().state == State::broken) {
    study.observations.back().summary += fmt::format("; first after {}", seen.first);
    const bool stays = any_differs(seen.at_end, study.limit());
    study.see(nan && !was_nan ? Sign::nan_after_wide
              : stays         ? Sign::changed_after_wide
                              : Sign::moved_after_wide,
              seen.first);
  }
  if (!seen.nan.empty() && !was_nan && !nan) study.see(Sign::nan_in_wide_alone, seen.nan);
}

}  // namespace

/// Plain requests, before and after content that is far from them.
void wide(Study& study) {
  const Seen seen = ask_all(study);
  conclude(study, "wide", "plain requests before and after wide content", seen.plain);
  see_plain(study, seen);
  if (study.reference == nullptr) return;
  conclude(study, "reference-wide", "answers to wide content, and those of the reference", seen.of_reference, kMostGap);
  const bool broken = study.observations.back().state == State::broken;
  if (broken && !study.saw(Sign::reference_differs)) study.see(Sign::reference_in_wide, "see reference-wide");
}

}  // namespace nanscope::server_probe::experiment
