#include <fmt/format.h>

#include <cmath>

#include "core/diagnosis/detectors/detector.h"
#include "core/diagnosis/scales.h"

namespace nanscope {
namespace {

/// What is wrong with it, or empty.
std::string_view complaint(const ScaleRow& row) {
  const std::string_view by_value = scale_complaint(row.scale);
  return by_value.empty() && row.source == ScaleSource::sentinel ? "a sentinel" : by_value;
}

/// NaN or Inf born in the store itself, or where its codes are read back.
bool breaks_at(Facts& facts, const ScaleRow& row) {
  const std::optional<TensorRow> codes = facts.run.output(row.op, row.target + "_codes");
  if (codes && codes->health.bad() > 0) return true;
  const std::optional<OpRow> read = facts.run.find_op(row.step, row.layer, "kv_read");
  const SickOp* sick = read ? facts.sick(read->id) : nullptr;
  return sick != nullptr && sick->spoilt && sick->matters;
}

/// A scale computed from NaN is a consequence of that NaN.
bool inherited(const ScaleRow& row) {
  return row.source == ScaleSource::calibrated && !std::isfinite(row.calibrated_absmax);
}

}  // namespace

/// A scale with which no value has a meaning: zero, negative, infinite, NaN, or a sentinel never replaced.
FaultReport detect_scale_invalid(Facts& facts) {
  FaultReport report;
  std::int64_t entries = 0;
  for (const ScaleRow& row : facts.run.scales()) {
    if (complaint(row).empty() || inherited(row)) continue;
    ++entries;
    if (!report.faults.empty()) {
      FoundFault& known = report.faults.front();
      if (known.ops.back() != row.op) known.ops.push_back(row.op);
      known.fault.breaks = known.fault.breaks || breaks_at(facts, row);
      continue;
    }
    FoundFault found;
    found.ops = {row.op};
    const std::optional<TensorRow> codes = facts.run.output(row.op, row.target + "_codes");
    if (codes) {
      found.fault.where = facts.where(*codes);
    } else if (const std::optional<OpRow> op = facts.run.op(row.op)) {
      found.fault.where = facts.where(*op);
    }
    found.fault.breaks = breaks_at(facts, row);
    found.fault.evidence = {{"scale", row.scale}, {"policy", row.policy}, {"absmax", row.absmax}};
    if (row.source == ScaleSource::calibrated) {
      found.fault.evidence.push_back({"absmax when calibrated", row.calibrated_absmax});
      found.fault.evidence.push_back({"calibrated by request", row.calibrated_request});
    }
    found.fault.summary = fmt::format("{} scale of layer {} is {} ({}): {}", row.target, row.layer,
                                      to_string(EvidenceValue{row.scale}), row.policy, complaint(row));
    found.fault.fix = "give the scale a positive finite value, and refuse to calibrate on values that are all zero";
    report.faults.push_back(std::move(found));
  }
  report.figure = fmt::format("{} of {} ledger entries are zero, negative, not finite or sentinels", entries,
                              facts.run.scales().size());
  return report;
}

}  // namespace nanscope
