#include <fmt/format.h>

#include <set>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// Link 2: a scale was computed from one step's values and is not computed again.
Link detect_scale_locked(Facts& facts) {
  Link link;
  const ScaleRow* first = nullptr;
  std::set<std::int64_t> layers;
  std::int64_t later = 0;
  std::set<std::int64_t> calibrations;
  for (const ScaleRow& scale : facts.run.scales()) {
    if (scale.source != ScaleSource::calibrated) continue;
    calibrations.insert(scale.calibrated_step);
    if (!scale.locked) continue;
    if (first == nullptr) first = &scale;
    layers.insert(scale.layer);
    if (scale.step != scale.calibrated_step) ++later;
  }
  if (first == nullptr) {
    link.summary = calibrations.empty()
                       ? "0 scales were computed from data"
                       : fmt::format("0 scales are locked: they were computed anew at {} steps", calibrations.size());
    return link;
  }
  link.state = LinkState::found;
  if (const std::optional<OpRow> op = facts.run.op(first->op)) link.where = facts.where(*op);
  const StepRow* step = facts.run.step(first->calibrated_step);
  const std::string by = step != nullptr ? request_text(*step) : fmt::format("request {}", first->calibrated_request);
  link.evidence = {{"calibrated by request", first->calibrated_request},
                   {"calibrated on tokens", first->calibrated_tokens},
                   {"target", first->target},
                   {"absmax", first->calibrated_absmax},
                   {"scale", first->scale},
                   {"layers", static_cast<std::int64_t>(layers.size())},
                   {"later uses", later}};
  link.summary = fmt::format(
      "computed by {} from {} and locked in {}, layer {} {}: absmax {:.4g}, scale {:.4g}; used {} "
      "since",
      by, counted(first->calibrated_tokens, "token"), counted(layers.size(), "layer"), first->layer, first->target,
      first->calibrated_absmax, first->scale, counted(later, "time"));
  return link;
}

}  // namespace nanscope
