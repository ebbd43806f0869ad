#include "instrument/server_probe/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "instrument/server_probe/limits.h"

namespace nanscope::server_probe {

const std::string kShort = "The harbour was quiet, and the";
const std::string kOther = "A letter came for the baker";
const std::string kLong =
    "The harbour was quiet in the morning, and the first boats left before the sun was up. An old man sat on the wall "
    "and mended a net. He had done this for forty years, and he did not have to look at his hands. Every few minutes "
    "he stopped, took out his pipe, and watched the water. A girl came down the steps with a basket of bread. She "
    "gave him a piece, and he thanked her and asked about her mother. They talked about the weather, about the price "
    "of fish, and about the new road over the hill. When the bell of the church rang eight times, she picked up her "
    "basket and went on to the market, where the baker was waiting for her. The old man folded the net, put it into "
    "the boat, and rowed out to the others. In the evening they all came back with full boxes, and the square smelled "
    "of salt and smoke. Children ran between the tables, and somebody played a song that everyone knew.";

namespace {

struct SignWords {
  std::string_view name;
  std::string_view text;
};
constexpr SignWords kSigns[] = {
#define SIGN(name, text) {#name, text},
#include "instrument/server_probe/signs.def"
#undef SIGN
};

#define EXPERIMENT(name) void name(Study&);
}  // namespace
namespace experiment {
#include "instrument/server_probe/experiments.def"
}
#undef EXPERIMENT

std::string_view name(Sign sign) { return kSigns[static_cast<std::size_t>(sign)].name; }
std::string_view text(Sign sign) { return kSigns[static_cast<std::size_t>(sign)].text; }

std::span<const Experiment> experiments() {
  static constexpr std::array kAll{
#define EXPERIMENT(name) &experiment::name,
#include "instrument/server_probe/experiments.def"
#undef EXPERIMENT
  };
  return kAll;
}

const Reply& Study::first() const {
  static const Reply none;
  return repeats.front().empty() ? none : repeats.front().front();
}

double Study::limit() const {
  const double unknown = resolution < 0 ? kUnmeasured : 0;
  const double kernels = std::max(kTimesTypical * std::max(resolution, grid), kTimesLargest * largest);
  return std::clamp(kernels, std::max(kLeastGap, unknown), kMostGap);
}

bool from_nan(const Reply& reply) { return reply.says_nan || reply.nan_in_answer() || reply.nan_in_prompt(); }

Difference compare(const Reply& a, const Reply& b) {
  Difference found;
  if (!a.answered() || !b.answered()) {
    found.failed = true;
    found.nan = from_nan(a) != from_nan(b);
    return found;
  }
  found.texts = !a.has_chances && !b.has_chances && !(a.text.empty() && b.text.empty());
  found.same_text = a.text == b.text;
  const auto take = [&](double size, std::size_t at) {
    found.all.push_back(size);
    if (size <= found.largest) return;
    found.largest = size;
    found.at = static_cast<std::int64_t>(at);
  };
  for (std::size_t i = 0; i < std::min(a.spots.size(), b.spots.size()); ++i) {
    const Spot& x = a.spots[i];
    const Spot& y = b.spots[i];
    ++found.compared;
    if (std::isnan(x.log_probability) != std::isnan(y.log_probability)) {
      found.nan = true;
      found.at = static_cast<std::int64_t>(i);
      return found;
    }
    if (std::isnan(x.log_probability)) continue;
    if (x.token != y.token) {
      // The other token was second at best: what it lost by is how much moved at least.
      const double margin = x.top.size() > 1 ? x.top[0] - x.top[1] : 0;
      take(std::isfinite(margin) ? margin : 0, i);
      return found;
    }
    take(std::abs(x.log_probability - y.log_probability), i);
  }
  return found;
}

Difference compare_prompts(const Reply& a, const Reply& b, std::size_t first, std::size_t end) {
  Difference found;
  found.failed = !a.answered() || !b.answered();
  for (std::size_t i = first; i < std::min({end, a.prompt.size(), b.prompt.size()}); ++i) {
    const auto& x = a.prompt[i];
    const auto& y = b.prompt[i];
    if (!x || !y || x->id != y->id) continue;
    ++found.compared;
    const bool nan = std::isnan(x->log_probability);
    if (nan != std::isnan(y->log_probability)) {
      found.nan = true;
      if (found.at < 0) found.at = static_cast<std::int64_t>(i);
    }
    if (nan || found.nan) continue;
    const double gap = std::abs(x->log_probability - y->log_probability);
    found.all.push_back(gap);
    if (gap <= found.largest) continue;
    found.largest = gap;
    found.at = static_cast<std::int64_t>(i);
  }
  return found;
}

bool differs(const Difference& difference, double limit) { return difference.nan || difference.largest > limit; }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

/// Without log probabilities: texts that are the same say that much, others may differ by the noise of a near tie.
void conclude_texts(Study& study, Observation seen, std::string_view compared,
                    std::span<const Difference> differences) {
  const auto texts = std::count_if(differences.begin(), differences.end(), [](const auto& one) { return one.texts; });
  const auto same =
      std::count_if(differences.begin(), differences.end(), [](const auto& one) { return one.texts && one.same_text; });
  const bool failed = std::any_of(differences.begin(), differences.end(), [](const auto& one) { return one.failed; });
  if (texts > 0 && same == texts) {
    seen.summary = fmt::format("{}: the same text in {} comparison{}; the server tells no log probabilities", compared,
                               texts, texts == 1 ? "" : "s");
    return study.observations.push_back(std::move(seen));
  }
  std::string why = "the server tells no log probabilities";
  if (texts > 0) why += fmt::format("; {} of {} texts differ, which may be noise", texts - same, texts);
  if (texts == 0 && failed) why = study.talk.over() ? study.talk.why_over() : "the server refused the requests";
  study.not_asked(seen.invariant, why);
}

}  // namespace

void conclude(Study& study, std::string invariant, std::string_view compared, std::span<const Difference> differences,
              double limit) {
  Observation seen{std::move(invariant), State::held, {}};
  seen.limit = limit;
  std::int64_t at = -1;
  std::int64_t broken = 0;
  bool nan = false;
  for (const Difference& one : differences) {
    seen.compared += one.compared;
    nan = nan || one.nan;
    broken += differs(one, seen.limit) ? 1 : 0;
    if (one.largest > seen.largest || (one.nan && at < 0)) at = one.at;
    seen.largest = std::max(seen.largest, one.largest);
  }
  if (seen.compared == 0 && !nan) return conclude_texts(study, std::move(seen), compared, differences);
  if (broken > 0) seen.state = State::broken;
  const std::string place = at >= 0 ? fmt::format(", at token {}", at) : std::string();
  if (nan) {
    seen.summary = fmt::format("{}: NaN in one and not in the other in {} of {} comparisons{}", compared, broken,
                               differences.size(), place);
  } else {
    seen.summary = fmt::format("{}: log probabilities differ by {:.3g} at most{} ({} tokens, noise up to {:.3g})",
                               compared, seen.largest, place, seen.compared, seen.limit);
  }
  study.observations.push_back(std::move(seen));
}

}  // namespace nanscope::server_probe
