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

constexpr int kRepeats = 5;
constexpr int kRepeatTokens = 12;

/// Which answers are others than the first.
void find_pattern(Study& study, const std::vector<Reply>& replies, double limit, std::string_view what) {
  bool any_nan = false;
  bool all_nan = true;
  int changes = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    any_nan = any_nan || from_nan(replies[i]);
    all_nan = all_nan && from_nan(replies[i]);
    if (i == 0 || !differs(compare(replies[i - 1], replies[i]), limit)) continue;
    ++changes;
    last = i;
  }
  if (any_nan && !all_nan) study.see(Sign::nan_sometimes, fmt::format("the {} request", what));
  if (changes == 0) return;
  const std::string where = fmt::format("the {} request", what);
  if (changes > 1) return study.see(Sign::repeat_varies, where);
  study.see(last == 1 ? Sign::repeat_first : Sign::repeat_once, fmt::format("{}, time {}", where, last + 1));
}

}  // namespace

/// The same request again, alone: asked first, so that what the first request sets is seen.
void repeat(Study& study) {
  for (std::vector<Reply>& replies : study.repeats) {
    const std::string& prompt = &replies == &study.repeats.front() ? kShort : kOther;
    for (int i = 0; i < kRepeats && !study.talk.over(); ++i) {
      replies.push_back(study.talk.ask({.text = prompt, .ids = {}, .tokens = kRepeatTokens}));
    }
  }
  const Reply& first = study.first();
  if (from_nan(first)) study.see(Sign::nan_in_first_answer, "the first short request");
  const bool finite = !first.spots.empty() && !std::isnan(first.spots.front().log_probability);
  if (finite && first.nan_in_answer()) study.see(Sign::nan_in_decode_alone, "the first short request");
}

/// Read when the noise is known. The kernels and their shapes are the same each time, so its noise is smaller.
void read_repeats(Study& study) {
  const double limit = std::min(study.limit(), std::max(kUnmeasured, kTimesLargest * study.grid));
  std::vector<Difference> differences;
  constexpr std::array kWhat{"first short", "second short"};
  for (std::size_t i = 0; i < study.repeats.size(); ++i) {
    const std::vector<Reply>& replies = study.repeats[i];
    for (std::size_t at = 1; at < replies.size(); ++at) differences.push_back(compare(replies[0], replies[at]));
    find_pattern(study, replies, limit, kWhat[i]);
  }
  conclude(study, "repeat", "the same request again, alone", differences, limit);
}

}  // namespace nanscope::server_probe::experiment
