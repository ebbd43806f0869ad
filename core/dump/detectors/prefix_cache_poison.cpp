#include <fmt/format.h>

#include "core/dump/detectors/detector.h"
#include "core/dump/poison.h"

namespace nanscope::dump_detectors {

/// A pass whose own keys and values are healthy reads NaN that an earlier one left in the cache, and attends to it.
DumpReport detect_prefix_cache_poison(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t caches = 0;
  for (const PoisonedCache& poisoned : poisoned_caches(facts)) {
    ++caches;
    const bool unread = poisoned.probabilities ? poisoned.attended == 0 : poisoned.behind_the_end;
    if (explained.has(poisoned.cache) || unread || poisoned.keys.empty()) continue;
    const DumpTensor& cache = facts.tensor(poisoned.cache);
    DumpFinding finding = finding_at(facts, poisoned.cache, {poisoned.cache});
    finding.fault.where.tokens = Range{poisoned.keys.front(), poisoned.keys.back()};
    finding.fault.evidence = {{"bad_slots", static_cast<std::int64_t>(poisoned.keys.size())},
                              {"first_slot", poisoned.keys.front()},
                              {"last_slot", poisoned.keys.back()},
                              {"own_tokens", poisoned.written}};
    const std::string who = poisoned.source ? fmt::format("{} left them there", facts.tensor(*poisoned.source).name)
                                            : std::string("who left them there was not dumped");
    finding.fault.summary =
        fmt::format("{} slots of {} ({} to {}) hold NaN or Inf though what this pass computed is finite; {}",
                    poisoned.keys.size(), cache.name, poisoned.keys.front(), poisoned.keys.back(), who);
    finding.fault.fix = "drop the poisoned blocks from the prefix cache, and do not publish blocks that hold NaN";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure = fmt::format("{} caches hold NaN that their own pass did not write and that did harm", caches);
  return report;
}

}  // namespace nanscope::dump_detectors
