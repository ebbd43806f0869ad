#include <fmt/format.h>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// Link 11: attention spreads the NaN of some tokens to all of them within one layer.
Link detect_all_tokens_nan(Facts& facts) {
  Link link;
  std::string most = "0 residual sums hold NaN";
  std::int64_t most_after = 0;
  for (const SickOp& sick : facts.sick_ops()) {
    if (sick.op.kind != "residual_add") continue;
    const TensorRow& after = sick.bad_output();
    std::optional<TensorRow> before = facts.run.input(sick.op.id, "a");
    if (!before || before->tokens != after.tokens) continue;
    const auto bad_before = static_cast<std::int64_t>(facts.bad_rows(*before).size());
    const auto bad_after = static_cast<std::int64_t>(facts.bad_rows(after).size());
    if (bad_after > most_after) {
      most_after = bad_after;
      most = fmt::format("the most is {} of {} tokens before and {} after layer {} of {}", bad_before, after.tokens,
                         bad_after, sick.op.layer, request_text(sick.step));
    }
    if (bad_before == 0 || bad_before >= after.tokens || bad_after != after.tokens) continue;
    link.state = LinkState::found;
    link.where = facts.where(after, Range{0, after.tokens - 1});
    link.evidence = {{"NaN tokens before", bad_before}, {"NaN tokens after", bad_after}, {"tokens", after.tokens}};
    link.summary = fmt::format("layer {}: {} of {} tokens NaN become {} of {} at {}", sick.op.layer, bad_before,
                               after.tokens, bad_after, after.tokens, sick.op.name);
    return link;
  }
  link.summary = most;
  return link;
}

}  // namespace nanscope
