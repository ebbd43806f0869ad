#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/dump/detectors/detector.h"
#include "core/dump/poison.h"

namespace nanscope::dump_detectors {
namespace {

/// Keys behind the end are hidden by the mask before anything is multiplied; values meet their zero. Where both are bad
/// and no probability was dumped, it was the values.
bool values_did_it(const DumpFacts& facts, const std::vector<PoisonedCache>& all, const PoisonedCache& one) {
  const std::string& shown = facts.tensor(one.shown).at.role;
  if (one.probabilities || shown == "scores" || shown == "probs") return false;
  if (!facts.tensor(one.cache).at.role.starts_with('k')) return false;
  return std::any_of(all.begin(), all.end(), [&](const PoisonedCache& other) {
    return facts.pass_of(other.cache) == facts.pass_of(one.cache) &&
           facts.tensor(other.cache).at.layer == facts.tensor(one.cache).at.layer &&
           facts.tensor(other.cache).at.role.starts_with('v');
  });
}

}  // namespace

/// Values in KV slots that nobody attends to, and NaN all the same: 0 x NaN is NaN.
DumpReport detect_masked_tail_poison(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t caches = 0;
  const std::vector<PoisonedCache> all = poisoned_caches(facts);
  for (const PoisonedCache& poisoned : all) {
    ++caches;
    if (values_did_it(facts, all, poisoned)) continue;
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
