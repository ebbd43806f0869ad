#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

FoundFault fault_of(Facts& facts, const std::vector<const Clip*>& clips) {
  const Clip& first = *clips.front();
  const Clip* worst = clips.front();
  std::int64_t clipped = 0;
  std::set<std::int64_t> layers;
  std::set<std::int64_t> steps;
  FoundFault found;
  for (const Clip* clip : clips) {
    if (clip->scale.headroom < worst->scale.headroom) worst = clip;
    if (clip->codes) clipped += static_cast<std::int64_t>(clip->codes->health.clipped);
    layers.insert(clip->scale.layer);
    steps.insert(clip->scale.step);
    if (found.ops.empty() || found.ops.back() != clip->scale.op) found.ops.push_back(clip->scale.op);
  }
  if (first.codes) {
    std::vector<std::int64_t> rows;
    const std::vector<Health>& health = facts.rows(*first.codes);
    for (std::size_t i = 0; i < health.size(); ++i) {
      if (health[i].clipped > 0) rows.push_back(static_cast<std::int64_t>(i));
    }
    found.fault.where = facts.where(*first.codes, rows);
  } else if (const std::optional<OpRow> op = facts.run.op(first.scale.op)) {
    found.fault.where = facts.where(*op);
  }
  const ScaleRow& scale = worst->scale;
  const StepRow* then = facts.run.step(scale.calibrated_step);
  const std::string by = then != nullptr ? request_text(*then) : fmt::format("request {}", scale.calibrated_request);
  found.fault.evidence = {{"scale", first.scale.scale},
                          {"calibrated by request", scale.calibrated_request},
                          {"calibrated on tokens", scale.calibrated_tokens},
                          {"absmax when calibrated", scale.calibrated_absmax},
                          {"absmax now", scale.absmax},
                          {"headroom", scale.headroom},
                          {"headroom here", first.scale.headroom},
                          {"clipped values", clipped},
                          {"relative error by clipping", worst->noise},
                          {"layers", static_cast<std::int64_t>(layers.size())},
                          {"steps", static_cast<std::int64_t>(steps.size())}};
  const StepRow* now = facts.run.step(first.scale.step);
  found.fault.summary = fmt::format(
      "the {} scale of layer {}, computed by {} from {} tokens with absmax {:.4g}, {} absmax {:.4g}: headroom {:.3g}, "
      "first clips in {}",
      scale.target, scale.layer, by, scale.calibrated_tokens, scale.calibrated_absmax,
      scale.locked ? "is locked and meets" : "is kept and meets", scale.absmax, scale.headroom,
      now != nullptr ? request_text(*now) : std::string("a later step"));
  found.fault.fix = "store the KV cache unquantized (bf16), or compute its scale per request or per token";
  return found;
}

}  // namespace

/// A scale that was computed from another step's values and clips these ones by more than rounding does.
FaultReport detect_kv_scale_locked(Facts& facts) {
  FaultReport report;
  std::map<std::int64_t, std::vector<const Clip*>> by_calibration;
  double slight = 0;
  for (const Clip& clip : facts.clips()) {
    if (!clip.stale || clip.delayed) continue;
    if (clip.significant) {
      by_calibration[clip.scale.calibrated_step].push_back(&clip);
    } else {
      slight = std::max(slight, clip.noise);
    }
  }
  std::size_t entries = 0;
  for (const auto& [step, clips] : by_calibration) {
    report.faults.push_back(fault_of(facts, clips));
    entries += clips.size();
  }
  if (entries > 0) {
    report.figure = fmt::format("{} of {} ledger entries clip", entries, facts.run.scales().size());
    return report;
  }
  std::size_t stale = 0;
  double lowest = 0;
  for (const ScaleRow& scale : facts.run.scales()) {
    if (scale.source != ScaleSource::calibrated || scale.calibrated_step == scale.step) continue;
    if (stale++ == 0 || scale.headroom < lowest) lowest = scale.headroom;
  }
  report.figure = stale == 0 ? "0 scales computed from another step's values"
                             : fmt::format("smallest headroom of {} such scales is {:.3g}", stale, lowest);
  if (slight > 0)
    report.figure += fmt::format("; clipping adds a relative error of {:.2g}, less than rounding", slight);
  return report;
}

}  // namespace nanscope
