#include <fmt/format.h>

#include <cmath>

#include "core/counted.h"
#include "core/diagnosis/detectors/births.h"
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

/// Padding, packing or cast: what made the scale of a block NaN.
std::string fix_of(const SickOp& quantise, const FoundFault& found) {
  const std::int64_t blocks = count_attribute(quantise.op, "blocks", 0);
  if (found.element && blocks > 0 && found.element->channel >= blocks) {
    return "zero the table of scales when it is allocated, or read no more scales than there are blocks";
  }
  if (text_attribute(quantise.op, "packing").value_or("") == "unmasked") {
    return "round scales up to powers of two before they are packed, or mask their mantissas";
  }
  return "let the cast of a scale saturate, and give the tensor a scale that its largest value allows";
}

/// Scales of blocks, which are tensors of the run and not in the ledger.
void add_block_scales(Facts& facts, FaultReport& report) {
  std::size_t places = 0;
  for (BirthGroup& group : births_of(facts, BirthClass::scale_invalid)) {
    std::erase_if(group.births, [](const SickOp* birth) { return birth->op.kind != "block_quantise"; });
    if (group.births.empty()) continue;
    places += group.births.size();
    FoundFault found = fault_at_birth(facts, group, "the scale of a block is NaN", "");
    found.fault.fix = fix_of(group.first(), found);
    report.faults.push_back(std::move(found));
  }
  if (places > 0) report.figure += fmt::format("; NaN among scales of blocks in {}", counted(places, "place"));
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
  add_block_scales(facts, report);
  return report;
}

}  // namespace nanscope
