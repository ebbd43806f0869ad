#include "core/diagnosis/detectors/births.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/counted.h"
#include "core/diagnosis/provenance/walk.h"
#include "core/diagnosis/scales.h"

namespace nanscope {
namespace {

bool is_eight_bit_float(Format format) { return info(format).bits <= 8 && info(format).exponent_bits > 0; }

BirthClass classify_spoilt(Facts& facts, const SickOp& birth) {
  for (const char* target : {"k", "v"}) {
    for (const KeyRow& key : birth.bad_keys) {
      if (!key.own) continue;
      const std::optional<StoredRow> stored = facts.stored_row(*key.writer, *key.slot, birth.op.layer, target);
      const ScaleRow* scale = stored ? facts.scale_of(stored->codes.op, target) : nullptr;
      if (scale != nullptr && !scale_complaint(scale->scale).empty()) return BirthClass::scale_invalid;
    }
  }
  const std::vector<KvReading>& readings = facts.readings();
  const bool told = std::any_of(readings.begin(), readings.end(), [](const KvReading& one) { return one.wrong(); });
  return told ? BirthClass::misread : BirthClass::invalid_op;
}

BirthClass classify_read(Facts& facts, const SickOp& birth) {
  if (birth.spoilt) return classify_spoilt(facts, birth);
  for (const KeyRow& key : birth.bad_keys) {
    if (key.own || !key.in_context || !key.slot || key.writer == nullptr) continue;
    if (facts.slots().shared(birth.step.request, key.slot->block, birth.step.id) != nullptr) {
      return BirthClass::prefix_cache_poison;
    }
  }
  return BirthClass::masked_tail_poison;
}

BirthClass classify_store(Facts& facts, const SickOp& birth) {
  const TensorRow& codes = birth.bad_output();
  const ScaleRow* scale = facts.scale_of(birth.op.id, codes.role.substr(0, 1));
  if (scale != nullptr && !scale_complaint(scale->scale).empty()) return BirthClass::scale_invalid;
  if (is_eight_bit_float(codes.format)) return BirthClass::fp8_nonsaturating_overflow;
  return codes.format == Format::f16 ? BirthClass::f16_overflow : BirthClass::invalid_op;
}

/// With a finite row and healthy weights a norm can only fail in its root, or by squares that overflow.
bool collapsed(Facts& facts, const SickOp& birth) {
  const std::vector<NormRow> rows = norm_rows(facts, birth.op);
  if (!rows.empty()) {
    return std::any_of(rows.begin(), rows.end(), [](const NormRow& row) {
      return std::isfinite(row.mean) && std::isfinite(row.variance) && !(row.radicand() > 0);
    });
  }
  const std::optional<TensorRow> x = facts.run.input(birth.op.id, "x");
  if (!x || birth.bad_output().health.nan == 0) return false;
  const double width = static_cast<double>(x->channels);
  return double{x->health.absmax} * x->health.absmax * width < double{std::numeric_limits<float>::max()};
}

bool fully_masked(Facts& facts, const SickOp& birth) {
  const auto first_key = number_attribute(birth.op, "first_key");
  const auto first_position = number_attribute(birth.op, "first_position");
  if (first_key && first_position) {
    return std::any_of(birth.newborn.begin(), birth.newborn.end(),
                       [&](std::int64_t row) { return *first_key > *first_position + static_cast<double>(row); });
  }
  // An imported run may hold masked scores: rows of nothing but -Inf.
  const std::optional<TensorRow> scores = facts.run.input(birth.op.id, "scores");
  if (!scores) return false;
  const std::vector<Health>& rows = facts.rows(*scores);
  return std::any_of(rows.begin(), rows.end(),
                     [](const Health& row) { return row.count > 0 && row.neg_inf == row.count; });
}

}  // namespace

BirthClass classify(Facts& facts, const SickOp& birth) {
  if (birth.op.kind == "kv_read") return classify_read(facts, birth);
  if (!birth.bad_weight.empty()) return BirthClass::weight_corruption;
  if (birth.op.kind == "kv_store" || birth.op.kind == "cast") return classify_store(facts, birth);
  if (birth.op.kind == "layer_norm" && collapsed(facts, birth)) return BirthClass::variance_collapse;
  if (birth.op.kind == "token_softmax" && number_attribute(birth.op, "legal").value_or(1) == 0) {
    return BirthClass::softmax_fully_masked;
  }
  if (birth.op.kind == "softmax" && fully_masked(facts, birth)) return BirthClass::softmax_fully_masked;
  if (birth.op.kind == "block_quantise") return BirthClass::scale_invalid;
  if (birth.op.kind == "route") return BirthClass::router_cancellation;
  const TensorRow& output = birth.bad_output();
  if (output.format == Format::f16 && output.health.pos_inf + output.health.neg_inf > 0)
    return BirthClass::f16_overflow;
  return BirthClass::invalid_op;
}

std::vector<BirthGroup> births_of(Facts& facts, BirthClass wanted) {
  std::map<std::int64_t, BirthGroup> groups;  // by request
  for (const SickOp* birth : facts.births()) {
    if (classify(facts, *birth) == wanted) groups[birth->step.request].births.push_back(birth);
  }
  std::vector<BirthGroup> found;
  found.reserve(groups.size());
  for (auto& [request, group] : groups) found.push_back(std::move(group));
  std::sort(found.begin(), found.end(),
            [](const BirthGroup& a, const BirthGroup& b) { return a.first().op.id < b.first().op.id; });
  return found;
}

FoundFault fault_at_birth(Facts& facts, const BirthGroup& group, std::string_view what, std::string fix) {
  const SickOp& birth = group.first();
  const TensorRow& output = birth.bad_output();
  FoundFault found;
  for (const SickOp* other : group.births) found.ops.push_back(other->op.id);
  found.element = first_bad_element(facts, output, birth.newborn.empty() ? 0 : birth.newborn.front());
  found.fault.where = facts.where(output, birth.newborn);
  found.fault.breaks = true;
  const WhyPath path = walk(facts, *found.element);
  std::string reason;
  if (!path.hops.empty()) {
    found.fault.evidence = path.hops.front().numbers;
    reason = path.hops.front().text;
  }
  found.fault.evidence.push_back({"bad rows", static_cast<std::int64_t>(birth.newborn.size())});
  found.fault.evidence.push_back({"rows", output.tokens});
  found.fault.evidence.push_back({"NaN", static_cast<std::int64_t>(output.health.nan)});
  found.fault.evidence.push_back({"Inf", static_cast<std::int64_t>(output.health.pos_inf + output.health.neg_inf)});
  found.fault.summary = fmt::format("{} at {}: {}", what, tensor_text(found.fault.where), reason);
  found.fault.fix = std::move(fix);
  return found;
}

FaultReport report_births(Facts& facts, BirthClass wanted, std::string_view what, const std::string& fix,
                          const std::string& none) {
  FaultReport report;
  std::size_t places = 0;
  const std::vector<BirthGroup> groups = births_of(facts, wanted);
  for (const BirthGroup& group : groups) {
    report.faults.push_back(fault_at_birth(facts, group, what, fix));
    places += group.births.size();
  }
  report.figure = groups.empty() ? none : counted(places, "place") + " in " + counted(groups.size(), "request");
  return report;
}

const SickOp* first_norm_birth(Facts& facts) {
  for (const SickOp* birth : facts.births()) {
    if (birth->op.kind == "layer_norm") return birth;
  }
  return nullptr;
}

}  // namespace nanscope
