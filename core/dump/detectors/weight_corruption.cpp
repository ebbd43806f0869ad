#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {
namespace {

/// A bit flipped in an exponent makes a value this many times its neighbours' largest; weights that were
/// trained so are not known.
constexpr float kFlipped = 1024;

struct Outlier {
  std::int64_t index = 0;
  float value = 0;
  float next = 0;  ///< the largest magnitude but this
};

/// One element beyond all others by far. Scales of several elements count too: they are weights' own.
std::optional<Outlier> lone_outlier(DumpFacts& facts, TensorIndex index) {
  const Health& health = facts.tensor(index).health;
  if (health.count < 64 || health.absmax <= 0) return std::nullopt;
  const double rms = std::sqrt(health.sum_sq / static_cast<double>(health.finite()));
  // One element of n that is k times all others gives a root mean square of at least absmax / sqrt(n).
  if (double{health.absmax} < 8 * rms &&
      double{health.absmax} < 0.5 * rms * std::sqrt(static_cast<double>(health.count))) {
    return std::nullopt;
  }
  const auto values = facts.values(index);
  if (!values) return std::nullopt;
  Outlier found;
  for (std::size_t i = 0; i < values->size(); ++i) {
    const float magnitude = std::abs((*values)[i]);
    if (magnitude > std::abs(found.value)) {
      found.next = std::abs(found.value);
      found.value = (*values)[i];
      found.index = static_cast<std::int64_t>(i);
    } else if (magnitude > found.next) {
      found.next = magnitude;
    }
  }
  if (found.next <= 0 || std::abs(found.value) < kFlipped * found.next) return std::nullopt;
  return found;
}

bool is_weight(const DumpTensor& tensor) {
  return tensor.at.role == "weight" || tensor.at.role == "bias" ||
         (tensor.at.role == "weight_scale" && tensor.count() > 1 && tensor.bad());
}

/// A bad weight that nothing reads harms nobody: what its module, or its layer and what follows, put out is healthy.
bool did_harm(DumpFacts& facts, TensorIndex weight) {
  const TensorName& at = facts.tensor(weight).at;
  bool seen = false;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    if (!is_activation(tensor) || tensor.at.tower != at.tower) continue;
    if (tensor.at.module == at.module && tensor.at.port == Port::output) return tensor.bad();
    if (tensor.at.layer.value_or(INT64_MAX) < at.layer.value_or(INT64_MIN) || tensor.at.order < 0) continue;
    seen = true;
    if (tensor.bad()) return true;
  }
  return !seen;
}

DumpFinding bad_values(DumpFacts& facts, TensorIndex index) {
  const DumpTensor& tensor = facts.tensor(index);
  DumpFinding finding = finding_at(facts, index, {index});
  const std::int64_t first = tensor.health.first_bad;
  finding.fault.evidence = {{"bad", static_cast<std::int64_t>(tensor.health.bad())},
                            {"nan", static_cast<std::int64_t>(tensor.health.nan)},
                            {"elements", tensor.count()},
                            {"first_bad", first}};
  if (tensor.channels() > 0) finding.fault.where.channels = Range{first % tensor.channels(), first % tensor.channels()};
  finding.fault.summary =
      fmt::format("{} of {} elements of the weight {} are NaN or Inf, the first at [{},{}]", tensor.health.bad(),
                  tensor.count(), tensor.name, first / std::max<std::int64_t>(1, tensor.channels()),
                  first % std::max<std::int64_t>(1, tensor.channels()));
  finding.fault.breaks = true;
  return finding;
}

DumpFinding flipped_bit(DumpFacts& facts, TensorIndex index, const Outlier& outlier) {
  const DumpTensor& tensor = facts.tensor(index);
  DumpFinding finding = finding_at(facts, index, {index});
  finding.fault.evidence = {{"value", double{outlier.value}},
                            {"next_largest", double{outlier.next}},
                            {"ratio", double{std::abs(outlier.value)} / double{outlier.next}},
                            {"index", outlier.index}};
  finding.fault.where.channels = Range{outlier.index % tensor.channels(), outlier.index % tensor.channels()};
  finding.fault.summary = fmt::format(
      "one element of {}, at [{},{}], is {:.6g} where no other exceeds {:.6g}: as a flipped exponent bit makes it",
      tensor.name, outlier.index / tensor.channels(), outlier.index % tensor.channels(), outlier.value, outlier.next);
  finding.fault.breaks = true;
  return finding;
}

}  // namespace

DumpReport detect_weight_corruption(DumpFacts& facts, const Explained&) {
  DumpReport report;
  std::size_t looked_at = 0;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    if (!is_weight(facts.tensor(i))) continue;
    ++looked_at;
    if (facts.tensor(i).bad()) {
      if (!did_harm(facts, i)) continue;
      report.findings.push_back(bad_values(facts, i));
    } else if (const auto outlier = lone_outlier(facts, i); outlier && facts.tensor(i).at.role == "weight") {
      report.findings.push_back(flipped_bit(facts, i, *outlier));
    }
  }
  for (DumpFinding& finding : report.findings) {
    finding.fault.fix = "load the checkpoint again and compare its checksum; look for a faulty disk or memory";
  }
  report.figure = fmt::format("{} of {} dumped weights hold NaN, Inf or one element far beyond all others",
                              report.findings.size(), looked_at);
  return report;
}

}  // namespace nanscope::dump_detectors
