#include <fmt/format.h>

#include <cmath>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

bool invalid(const ScaleRow& row) {
  return !(row.scale > 0) || std::isinf(row.scale) || row.source == ScaleSource::sentinel;
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
    if (!invalid(row) || inherited(row)) continue;
    ++entries;
    if (!report.faults.empty()) {
      std::vector<std::int64_t>& ops = report.faults.front().ops;
      if (ops.back() != row.op) ops.push_back(row.op);
      continue;
    }
    FoundFault found;
    found.ops = {row.op};
    const std::optional<TensorRow> codes = facts.run.output(row.op, row.target + "_codes");
    if (codes) {
      found.fault.where = facts.where(*codes);
      found.fault.breaks = codes->health.bad() > 0;
    } else if (const std::optional<OpRow> op = facts.run.op(row.op)) {
      found.fault.where = facts.where(*op);
    }
    found.fault.evidence = {{"scale", row.scale},
                            {"policy", row.policy},
                            {"absmax", row.absmax},
                            {"absmax when calibrated", row.calibrated_absmax},
                            {"calibrated by request", row.calibrated_request}};
    found.fault.summary = fmt::format("{} scale of layer {} is {} ({})", row.target, row.layer,
                                      to_string(EvidenceValue{row.scale}), row.policy);
    found.fault.fix = "give the scale a positive finite value, and refuse to calibrate on values that are all zero";
    report.faults.push_back(std::move(found));
  }
  report.figure =
      fmt::format("{} of {} ledger entries are zero, negative, infinite or NaN", entries, facts.run.scales().size());
  return report;
}

}  // namespace nanscope
