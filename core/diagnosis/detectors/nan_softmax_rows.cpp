#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

/// Rows in which every probability of some head is NaN: at least a head's worth of NaN.
std::vector<std::int64_t> whole_rows(Facts& facts, const TensorRow& probs) {
  std::vector<std::int64_t> rows;
  const auto keys = static_cast<std::uint64_t>(probs.channels / std::max<std::int64_t>(probs.heads, 1));
  const std::vector<Health>& health = facts.rows(probs);
  for (std::size_t i = 0; i < health.size(); ++i) {
    if (health[i].nan > 0 && health[i].nan >= keys) rows.push_back(static_cast<std::int64_t>(i));
  }
  return rows;
}

}  // namespace

/// Link 10: one NaN score makes the whole softmax row NaN, through the sum.
Link detect_nan_softmax_rows(Facts& facts) {
  Link link;
  for (const SickOp& sick : facts.sick_ops()) {
    if (sick.op.kind != "softmax") continue;
    const TensorRow& probs = sick.bad_output();
    const std::vector<std::int64_t> rows = whole_rows(facts, probs);
    if (rows.empty()) continue;
    const std::optional<TensorRow> scores = facts.run.input(sick.op.id, "scores");
    link.state = LinkState::found;
    link.where = facts.where(probs, rows);
    link.evidence = {{"NaN rows", static_cast<std::int64_t>(rows.size())},
                     {"rows", probs.tokens},
                     {"NaN probabilities", static_cast<std::int64_t>(probs.health.nan)},
                     {"probabilities", static_cast<std::int64_t>(probs.health.count)}};
    if (scores) link.evidence.push_back({"NaN scores before", static_cast<std::int64_t>(scores->health.nan)});
    link.summary = fmt::format(
        "layer {}: {} of {} rows of probabilities are NaN throughout ({} NaN scores became {} NaN probabilities)",
        sick.op.layer, rows.size(), probs.tokens, scores ? scores->health.nan : 0, probs.health.nan);
    return link;
  }
  link.summary = "0 softmax rows are NaN throughout";
  return link;
}

}  // namespace nanscope
