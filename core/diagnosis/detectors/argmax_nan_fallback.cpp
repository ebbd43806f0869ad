#include <fmt/format.h>

#include "core/diagnosis/detectors/logits.h"

namespace nanscope {

/// A token chosen from logits that are all NaN: the index says how the search starts, not what the model said.
FaultReport detect_argmax_nan_fallback(Facts& facts) {
  FaultReport report;
  for (const NanChoice& choice : nan_choices(facts)) {
    if (choice.token < 0) continue;  // the argmax refused
    FoundFault found;
    found.ops = {choice.argmax.id};
    found.element = Element{choice.logits.id, choice.row, 0};
    found.fault.where = facts.where(choice.logits, Range{choice.row, choice.row});
    found.fault.evidence = {{"NaN logits", choice.logits.channels},
                            {"token", choice.token},
                            {"text", choice.text},
                            {"the same token in the output", choice.repeated}};
    found.fault.summary = fmt::format(
        "request {}: all {} {} are NaN, token {} '{}' is where the search starts, {} times", choice.step.request,
        choice.logits.channels, choice.logits.role, choice.token, choice.text, choice.repeated);
    found.fault.fix = "refuse to sample from a row that holds NaN, and end the request with an error";
    report.faults.push_back(std::move(found));
  }
  report.figure = fmt::format("{} requests answered from all-NaN logits", report.faults.size());
  return report;
}

}  // namespace nanscope
