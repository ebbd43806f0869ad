#include <fmt/format.h>

#include <set>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// Delayed scaling: each scale comes from a history of largest values, and these values have left it behind.
FaultReport detect_delayed_scale_stale(Facts& facts) {
  FaultReport report;
  const Clip* worst = nullptr;
  const Clip* first = nullptr;
  FoundFault found;
  std::int64_t clipped = 0;
  std::set<std::int64_t> layers;
  for (const Clip& clip : facts.clips()) {
    if (!clip.delayed || !clip.significant) continue;
    if (first == nullptr) first = &clip;
    if (worst == nullptr || clip.scale.headroom < worst->scale.headroom) worst = &clip;
    if (clip.codes) clipped += static_cast<std::int64_t>(clip.codes->health.clipped);
    layers.insert(clip.scale.layer);
    if (found.ops.empty() || found.ops.back() != clip.scale.op) found.ops.push_back(clip.scale.op);
  }
  if (first == nullptr) {
    report.figure = "0 scales that follow a history of largest values clip";
    return report;
  }
  if (first->codes) {
    found.fault.where = facts.where(*first->codes);
  } else if (const std::optional<OpRow> op = facts.run.op(first->scale.op)) {
    found.fault.where = facts.where(*op);
  }
  const ScaleRow& scale = worst->scale;
  const StepRow* then = facts.run.step(scale.calibrated_step);
  const StepRow* now = facts.run.step(scale.step);
  found.fault.evidence = {{"scale", scale.scale},
                          {"largest of the history", scale.calibrated_absmax},
                          {"history from request", scale.calibrated_request},
                          {"absmax now", scale.absmax},
                          {"headroom", scale.headroom},
                          {"clipped values", clipped},
                          {"relative error by clipping", worst->noise},
                          {"layers", static_cast<std::int64_t>(layers.size())}};
  found.fault.summary = fmt::format(
      "the {} scale of layer {} follows a history whose largest value is {:.4g} ({}), and in {} it is {:.4g}: "
      "headroom {:.3g}",
      scale.target, scale.layer, scale.calibrated_absmax,
      then != nullptr ? request_text(*then) : std::string("an earlier step"),
      now != nullptr ? request_text(*now) : std::string("a later step"), scale.absmax, scale.headroom);
  found.fault.fix =
      "compute the scale from the values that are cast, or leave room in it for the largest that may come";
  report.figure = fmt::format("{} stores clip under a scale from their past, smallest headroom {:.3g}",
                              found.ops.size(), scale.headroom);
  report.faults.push_back(std::move(found));
  return report;
}

}  // namespace nanscope
