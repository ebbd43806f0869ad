#include <fmt/format.h>

#include "core/counted.h"
#include "core/diagnosis/detectors/logits.h"

namespace nanscope {

/// Link 14: all logits are NaN, the argmax gives 0, and token 0 of a GPT-2 byte order vocabulary is "!".
Link detect_nan_logits_token_zero(Facts& facts) {
  Link link;
  const std::vector<NanChoice> choices = nan_choices(facts);
  if (choices.empty()) {
    std::uint64_t nan = 0;
    for (const SickOp& sick : facts.sick_ops()) {
      const TensorRow* logits = sick.output("logits");
      if (logits != nullptr) nan += logits->health.nan;
    }
    link.summary = fmt::format("0 requests chose a token from logits that are all NaN ({} NaN logits)", nan);
    return link;
  }
  const NanChoice* first = nullptr;
  std::int64_t zeros = 0;
  for (const NanChoice& choice : choices) {
    if (choice.token != 0) continue;
    if (first == nullptr) first = &choice;
    ++zeros;
  }
  const NanChoice& shown = first != nullptr ? *first : choices.front();
  link.state = first != nullptr ? LinkState::found : LinkState::not_reached;
  link.where = facts.where(shown.logits, Range{shown.row, shown.row});
  link.evidence = {{"NaN rows of logits", shown.rows},
                   {"rows", shown.logits.tokens},
                   {"vocabulary", shown.logits.channels},
                   {"token", shown.token},
                   {"text", shown.text},
                   {"times in the output", shown.repeated},
                   {"requests", static_cast<std::int64_t>(choices.size())}};
  link.summary =
      first != nullptr
          ? fmt::format("request {}: all {} logits are NaN, argmax gives 0, '{}', {}; {} in all", shown.step.request,
                        shown.logits.channels, shown.text, counted(shown.repeated, "time"), counted(zeros, "request"))
          : fmt::format("request {}: all {} logits are NaN, but the token chosen is {}", shown.step.request,
                        shown.logits.channels, shown.token);
  return link;
}

}  // namespace nanscope
