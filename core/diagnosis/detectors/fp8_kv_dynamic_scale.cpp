#include <fmt/format.h>

#include <set>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// Link 1: the KV cache is stored in 8 bits with a scale that is computed from data at run time.
Link detect_fp8_kv_dynamic_scale(Facts& facts) {
  Link link;
  std::set<std::string> seen;
  for (const ScaleRow& scale : facts.run.scales()) {
    seen.insert(fmt::format("{} with policy {}", name(scale.format), scale.policy));
    if (info(scale.format).bits > 8 || scale.source != ScaleSource::calibrated) continue;
    link.state = LinkState::found;
    if (const std::optional<OpRow> op = facts.run.op(scale.op)) link.where = facts.where(*op);
    link.evidence = {{"format", std::string(name(scale.format))},
                     {"largest finite", double{info(scale.format).max_finite}},
                     {"policy", scale.policy},
                     {"ledger entries", static_cast<std::int64_t>(facts.run.scales().size())}};
    link.summary =
        fmt::format("K and V are stored as {} (largest finite {:g}) with scales computed at run time, policy {}",
                    name(scale.format), info(scale.format).max_finite, scale.policy);
    return link;
  }
  std::string kinds;
  for (const std::string& kind : seen) kinds += (kinds.empty() ? "" : ", ") + kind;
  link.summary = seen.empty() ? "the scale ledger is empty" : fmt::format("K and V are stored as {}", kinds);
  return link;
}

}  // namespace nanscope
