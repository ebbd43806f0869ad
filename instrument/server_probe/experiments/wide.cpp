#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "instrument/server_probe/study.h"

namespace nanscope::server_probe::experiment {

namespace {

constexpr int kWideTokens = 12;

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
    std::vector<std::int32_t> low;
    for (std::int32_t id = 0; id < 24; ++id) low.push_back(id);
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
  plain.text = study.talk.ask({.text = kShort, .ids = {}, .tokens = kWideTokens});
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

}  // namespace

/// Plain requests, before and after content that is far from them.
void wide(Study& study) {
  const Plain before = ask_plain(study);
  std::vector<Difference> differences;
  std::string first;
  std::vector<std::string> nan_wide;
  const auto take = [&](const std::vector<Difference>& more) {
    differences.insert(differences.end(), more.begin(), more.end());
  };
  bool moved = false;
  for (const Wide& content : wide_content(study)) {
    if (study.talk.over()) break;
    Ask ask = content.ask;
    ask.tokens = 4;
    const Reply reply = study.talk.ask(ask);
    if (from_nan(reply)) nan_wide.emplace_back(content.what);
    const Plain after = ask_plain(study);
    const auto more = compare_plain(before, after);
    take(more);
    if (first.empty() && any_differs(more, study.limit())) first = content.what;
    moved = moved || any_differs(more, study.limit());
  }
  const Plain last = ask_plain(study);
  const auto at_end = compare_plain(before, last);
  take(at_end);
  conclude(study, "wide", "plain requests before and after wide content", differences);
  const bool was_nan = from_nan(before.text) || from_nan(before.prompt);
  const bool is_nan = from_nan(last.text) || from_nan(last.prompt);
  const bool nan = std::any_of(differences.begin(), differences.end(), [](const Difference& one) { return one.nan; });
  if (study.observations.back().state == State::broken) {
    study.observations.back().summary += fmt::format("; first after {}", first);
    if (nan && !was_nan)
      study.see(Sign::nan_after_wide, first);
    else if (any_differs(at_end, study.limit()))
      study.see(Sign::changed_after_wide, first);
    else if (moved)
      study.see(Sign::moved_after_wide, first);
  }
  if (!nan_wide.empty() && !was_nan && !is_nan && !nan) study.see(Sign::nan_in_wide_alone, nan_wide.front());
}

}  // namespace nanscope::server_probe::experiment
