#include <fmt/format.h>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// A request attends to shared KV blocks in which another request left NaN.
FaultReport detect_prefix_cache_poison(Facts& facts) {
  FaultReport report =
      report_births(facts, BirthClass::prefix_cache_poison, "NaN read from a shared prefix",
                    "do not put blocks that hold NaN into the prefix cache, and drop the poisoned ones",
                    "0 NaN read from shared prefix blocks reached an output");
  for (FoundFault& found : report.faults) {
    const SickOp* read = facts.sick(found.ops.front());
    if (read == nullptr) continue;
    for (const KeyRow& key : read->bad_keys) {
      if (key.own || key.writer == nullptr || !key.slot) continue;
      const StepRow* step = facts.run.step(key.writer->step);
      const std::string writer = step != nullptr ? request_text(*step) : fmt::format("request {}", key.writer->request);
      found.fault.evidence.push_back({"written by request", key.writer->request});
      found.fault.evidence.push_back({"block", key.slot->block});
      found.fault.evidence.push_back({"bad keys", static_cast<std::int64_t>(read->bad_keys.size())});
      found.fault.summary = fmt::format("request {} reads {} NaN keys of the prefix that {} wrote into block {}",
                                        read->step.request, read->bad_keys.size(), writer, key.slot->block);
      break;
    }
  }
  return report;
}

}  // namespace nanscope
