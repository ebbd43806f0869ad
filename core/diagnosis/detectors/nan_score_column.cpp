#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

/// Keys whose score is NaN for every query of some head.
std::set<std::int64_t> nan_columns(const TensorData& scores, std::int64_t heads) {
  std::set<std::int64_t> keys;
  const std::int64_t width = scores.channels / std::max<std::int64_t>(heads, 1);
  for (std::int64_t channel = 0; width > 0 && scores.tokens > 0 && channel < scores.channels; ++channel) {
    bool all = true;
    for (std::int64_t row = 0; all && row < scores.tokens; ++row) all = std::isnan(scores.value(row, channel));
    if (all) keys.insert(channel % width);
  }
  return keys;
}

/// The same from health alone: a key row that is NaN makes its column NaN.
std::set<std::int64_t> nan_keys(Facts& facts, const SickOp& scores) {
  const std::optional<TensorRow> k = facts.run.input(scores.op.id, "k");
  if (!k) return {};
  const std::vector<std::int64_t> rows = facts.bad_rows(*k);
  return {rows.begin(), rows.end()};
}

}  // namespace

/// Link 9: a NaN key makes a column of the scores NaN, for every query.
Link detect_nan_score_column(Facts& facts) {
  Link link;
  std::int64_t sick_scores = 0;
  for (const SickOp& sick : facts.sick_ops()) {
    if (sick.op.kind != "attention_scores" || sick.bad_output().health.nan == 0) continue;
    ++sick_scores;
    const TensorRow& scores = sick.bad_output();
    const std::shared_ptr<const TensorData> data = facts.elements(scores);
    const std::set<std::int64_t> keys = data ? nan_columns(*data, scores.heads) : nan_keys(facts, sick);
    if (keys.empty()) continue;
    const std::int64_t width = scores.channels / std::max<std::int64_t>(scores.heads, 1);
    link.state = LinkState::found;
    link.where = facts.where(scores, Range{0, scores.tokens - 1}, Range{*keys.begin(), *keys.begin()});
    link.evidence = {{"NaN columns", static_cast<std::int64_t>(keys.size())},
                     {"keys", width},
                     {"first NaN key", *keys.begin()},
                     {"last NaN key", *keys.rbegin()},
                     {"queries", scores.tokens},
                     {"NaN scores", static_cast<std::int64_t>(scores.health.nan)},
                     {"scores", static_cast<std::int64_t>(scores.health.count)}};
    link.summary = fmt::format("layer {}: {} of {} keys (first {}) score NaN for all {} queries", sick.op.layer,
                               keys.size(), width, *keys.begin(), scores.tokens);
    return link;
  }
  link.summary = sick_scores == 0
                     ? "0 attention scores are NaN"
                     : fmt::format("NaN in the scores of {} ops, but no key is NaN for every query", sick_scores);
  return link;
}

}  // namespace nanscope
