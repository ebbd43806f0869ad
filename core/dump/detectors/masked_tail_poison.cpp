#include <fmt/format.h>

#include "core/dump/detectors/detector.h"
#include "core/dump/poison.h"

namespace nanscope::dump_detectors {

/// Values in KV slots that nobody attends to, and NaN all the same: 0 x NaN is NaN.
DumpReport detect_masked_tail_poison(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t caches = 0;
  for (const PoisonedCache& poisoned : poisoned_caches(facts)) {
    ++caches;
    const bool unread = poisoned.probabilities ? poisoned.attended == 0 : poisoned.behind_the_end;
    if (explained.has(poisoned.cache) || !unread || poisoned.keys.empty()) continue;
    const DumpTensor& cache = facts.tensor(poisoned.cache);
    DumpFinding finding = finding_at(facts, poisoned.cache, {poisoned.cache, poisoned.shown});
    finding.fault.where.tokens = Range{poisoned.keys.front(), poisoned.keys.back()};
    finding.fault.evidence = {{"bad_slots", static_cast<std::int64_t>(poisoned.keys.size())},
                              {"first_slot", poisoned.keys.front()},
                              {"attended", poisoned.attended},
                              {"nan", static_cast<std::int64_t>(cache.health.nan)}};
    finding.fault.summary = fmt::format(
        "{} slots of {} (from {} on) hold NaN or Inf; {}, and {} is NaN: 0 x NaN", poisoned.keys.size(), cache.name,
        poisoned.keys.front(),
        poisoned.probabilities ? "their probability is exactly 0 for every query" : "they lie behind the last token",
        facts.tensor(poisoned.shown).name);
    finding.fault.fix = "skip masked keys instead of multiplying by 0, or zero KV blocks when they are handed out";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure = fmt::format(
      "{} caches hold NaN that their own pass did not write and that did harm, {} of them in slots of probability 0",
      caches, report.findings.size());
  return report;
}

}  // namespace nanscope::dump_detectors
