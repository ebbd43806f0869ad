#include "scenarios/report/verify_words.h"

#include <fmt/format.h>

#include "core/counted.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

namespace {

constexpr double kLeastChance = -300;  ///< ExplainedBy::log10_chance where none was computed

/// "explains 100 % of 576 elements, by chance 1e-58"
std::string explains_text(const VerifiedOutput& one) {
  const ExplainedBy& best = one.explanations.front();
  std::string text = fmt::format("explains {:.4g} % of {}", 100 * best.share, counted(one.elements, "element"));
  if (best.log10_chance > kLeastChance && best.log10_chance < 0)
    text += fmt::format(", by chance 1e{:.0f}", best.log10_chance);
  return text;
}

}  // namespace

std::string_view certainty_word(HowSure certainty) {
  switch (certainty) {
    case HowSure::shown:
      return "shown";
    case HowSure::possible:
      return "possible";
    case HowSure::none:
      break;
  }
  return "none";
}

bool bad_weight(const VerifiedOutput& one) {
  return one.kind == "weight" && !one.not_finite.empty() && one.worst.row < 0;
}

std::string verified_place(const VerifiedOutput& one) {
  std::string text = one.op;
  if (one.layer) text += fmt::format(" of layer {}", *one.layer);
  if (one.step > 0) text += fmt::format(", step {}", one.step);
  return text;
}

std::string verified_off(const VerifiedOutput& one) {
  const std::int64_t off = one.elements - one.explained;
  if (bad_weight(one))
    return fmt::format("{} of {} elements are NaN or Inf in the checkpoint, the first in row {}", off, one.elements,
                       one.not_finite.front());
  if (one.kind == "weight") {
    if (one.worst.row < 0) return "its shape is not that of the file's";
    return fmt::format("{} of {} elements are not what the file holds, {} instead of {} at [{},{}]", off, one.elements,
                       number_text(one.worst.actual), number_text(one.worst.expected), one.worst.row,
                       one.worst.channel);
  }
  if (one.worst.row < 0 && off > 0 && !one.not_finite.empty())
    return fmt::format("a NaN or an Inf is born in {}, and no dumped input holds one there; the first is row {}",
                       counted(one.not_finite.size(), "row"), one.not_finite.front());
  if (off == 0 && !one.not_finite.empty())
    return fmt::format("{} with a NaN or an Inf where what they are made of gives numbers, the first is row {}",
                       counted(one.not_finite.size(), "row"), one.not_finite.front());
  if (one.bad_rows.size() == one.scattered.size() && !one.scattered.empty()) {
    const ScatteredRow& row = one.scattered.front();
    return fmt::format(
        "{} off as a whole: in row {}, the {} elements are off by {:.3g} times the standard deviation of "
        "rounding, {:.3g} times what it allows",
        one.scattered.size() == 1 ? "a row is" : counted(one.scattered.size(), "row") + " are", row.row, row.elements,
        std::sqrt(row.mean_square), one.worst.ratio);
  }
  return fmt::format("{} of {} elements are off by up to {} times what rounding allows ({} instead of {} at [{},{}])",
                     off, one.elements, number_text(one.worst.ratio), number_text(one.worst.actual),
                     number_text(one.worst.expected), one.worst.row, one.worst.channel);
}

std::string verified_because(const VerifiedOutput& one) {
  if (bad_weight(one)) return "every op that reads it computes with it";
  switch (certainty(one)) {
    case HowSure::none:
      return "nothing that is known explains it";
    case HowSure::possible:
      return fmt::format("possible: {} ({}){}", one.explanations[0].text, explains_text(one),
                         one.explanations.size() > 1 ? "; so would " + one.explanations[1].text : "");
    case HowSure::shown:
      break;
  }
  return fmt::format("shown: {} ({})", one.explanations[0].text, explains_text(one));
}

}  // namespace nanscope::report
