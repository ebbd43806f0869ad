#include <fmt/format.h>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// Link 3: values of a later step than the calibrating one are beyond what the scale can hold (headroom < 1).
Link detect_range_exceeded(Facts& facts) {
  Link link;
  const ScaleRow* first = nullptr;
  const ScaleRow* lowest = nullptr;
  std::int64_t entries = 0;
  for (const ScaleRow& scale : facts.run.scales()) {
    if (scale.source != ScaleSource::calibrated || scale.calibrated_step == scale.step) continue;
    if (lowest == nullptr || scale.headroom < lowest->headroom) lowest = &scale;
    if (!(scale.headroom < 1)) continue;
    ++entries;
    if (first == nullptr) first = &scale;
  }
  if (first == nullptr) {
    link.summary = lowest == nullptr ? "0 scales were used after the step that they were computed at"
                                     : fmt::format("the smallest headroom of a later step is {:.3g} (layer {} {})",
                                                   lowest->headroom, lowest->layer, lowest->target);
    return link;
  }
  link.state = LinkState::found;
  if (const std::optional<OpRow> op = facts.run.op(first->op)) link.where = facts.where(*op);
  const StepRow* step = facts.run.step(first->step);
  link.evidence = {
      {"target", first->target},   {"scale", first->scale},       {"absmax when calibrated", first->calibrated_absmax},
      {"absmax", first->absmax},   {"headroom", first->headroom}, {"smallest headroom", lowest->headroom},
      {"entries below 1", entries}};
  link.summary = fmt::format(
      "{}: layer {} {} reaches {:.4g}, calibrated on {:.4g}: headroom {:.3g}; {} below 1, lowest {:.3g} "
      "in layer {}",
      step != nullptr ? request_text(*step) : std::string("a later step"), first->layer, first->target, first->absmax,
      first->calibrated_absmax, first->headroom,
      entries == 1 ? "1 ledger entry" : fmt::format("{} ledger entries", entries), lowest->headroom, lowest->layer);
  return link;
}

}  // namespace nanscope
