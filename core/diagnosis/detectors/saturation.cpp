#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// KV values clipped by a scale that is not stale: fixed, from a checkpoint, or stuck at 1.
FaultReport detect_saturation(Facts& facts) {
  FaultReport report;
  const Clip* first = nullptr;
  const Clip* worst = nullptr;
  std::vector<std::int64_t> ops;
  std::int64_t clipped = 0;
  for (const Clip& clip : facts.clips()) {
    // Codes that overflowed to NaN are another class.
    if (clip.stale || !clip.significant || (clip.codes && clip.codes->health.bad() > 0)) continue;
    if (first == nullptr) first = &clip;
    if (worst == nullptr || clip.scale.headroom < worst->scale.headroom) worst = &clip;
    if (clip.codes) clipped += static_cast<std::int64_t>(clip.codes->health.clipped);
    if (ops.empty() || ops.back() != clip.scale.op) ops.push_back(clip.scale.op);
  }
  if (first == nullptr) {
    double lowest = 0;
    bool any = false;
    for (const ScaleRow& scale : facts.run.scales()) {
      if (any && !(scale.headroom < lowest)) continue;
      lowest = scale.headroom;
      any = true;
    }
    report.figure =
        any ? fmt::format("smallest headroom of {} ledger entries is {:.3g}", facts.run.scales().size(), lowest)
            : "the scale ledger is empty";
    return report;
  }
  FoundFault found;
  found.ops = std::move(ops);
  if (first->codes) {
    found.fault.where = facts.where(*first->codes);
  } else if (const std::optional<OpRow> op = facts.run.op(first->scale.op)) {
    found.fault.where = facts.where(*op);
  }
  found.fault.evidence = {{"scale", first->scale.scale},   {"headroom", worst->scale.headroom},
                          {"absmax", worst->scale.absmax}, {"clipped values", clipped},
                          {"policy", first->scale.policy}, {"relative error by clipping", worst->noise}};
  found.fault.summary =
      fmt::format("{} scale {:.6g} ({}) clips {} values, smallest headroom {:.3g}", first->scale.target,
                  first->scale.scale, first->scale.policy, clipped, worst->scale.headroom);
  found.fault.fix = "take the scale from the values that are stored, or store the cache unquantized";
  report.figure = fmt::format("{} values clipped, smallest headroom {:.3g}", clipped, worst->scale.headroom);
  report.faults.push_back(std::move(found));
  return report;
}

}  // namespace nanscope
