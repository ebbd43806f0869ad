#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {
namespace {

// A flipped exponent bit makes a value at least 2^16 times another; nothing in trained weights stands so alone.
constexpr double kLone = 65536;
// Codes without their scale are larger by the scale's inverse, which is in the thousands for trained weights in e4m3.
constexpr double kUnscaled = 256;

/// Root mean square of all elements but the largest; where their squares vanish in the sum's rounding, what it is at
/// most.
double rms_of_rest(const Health& health) {
  constexpr double kRounding = 1e-13;  // of a sum of some thousand squares in double
  const double square = double{health.absmax} * double{health.absmax};
  const auto rest = static_cast<double>(health.count) - 1;
  return rest < 1 ? 0 : std::sqrt(std::max(kRounding * square, health.sum_sq - square) / rest);
}

/// The extreme of the other sign, or the smallest magnitude of one sign: what the rest looks like.
double other_extreme(const Health& health) {
  return std::abs(double{health.absmax == health.max ? health.min : health.max});
}

double rms(const Health& health) { return std::sqrt(health.sum_sq / static_cast<double>(health.count)); }

/// One finite element beyond all others by far.
bool lone_outlier(const Health& health) {
  if (health.bad() > 0 || health.count < 64) return false;
  const double rest = std::max(rms_of_rest(health), other_extreme(health));
  return other_extreme(health) > 0 && double{health.absmax} >= kLone * rest;
}

/// "q_proj.weight" of "layers.3.q_proj.weight"; empty outside the layers.
std::string_view kind_of(std::string_view name) {
  if (!name.starts_with("layers.")) return {};
  name.remove_prefix(std::string_view("layers.").size());
  return name.substr(std::min(name.size(), name.find('.') + 1));
}

/// The largest root mean square of the same weight in other layers; 0 when there is none.
double peers_rms(std::span<const WeightRow> weights, const WeightRow& weight) {
  double largest = 0;
  for (const WeightRow& other : weights) {
    if (other.name == weight.name || kind_of(other.name) != kind_of(weight.name)) continue;
    if (other.health.count > 0 && other.health.bad() == 0) largest = std::max(largest, rms(other.health));
  }
  return largest;
}

/// The 8-bit format whose codes the weight holds unscaled: its largest value is the format's, and the same weight of
/// every other layer is far smaller.
std::optional<Format> unscaled_codes(std::span<const WeightRow> weights, const WeightRow& weight) {
  const double peers = kind_of(weight.name).empty() ? 0 : peers_rms(weights, weight);
  if (!(peers > 0) || weight.health.bad() > 0 || rms(weight.health) < kUnscaled * peers) return std::nullopt;
  constexpr std::array kEightBit{Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz};
  for (const Format format : kEightBit) {
    if (weight.health.absmax == info(format).max_finite) return format;
  }
  return std::nullopt;
}

/// The first op whose output the weight's odd values reached: what it put out is more than the rest could have made.
std::optional<TensorRow> harmed(Facts& facts, const WeightRow& weight, double rest) {
  for (const OpRow& op : facts.run.ops({})) {
    for (const InputRow& input : facts.run.inputs_of(op.id)) {
      if (input.weight != weight.name) continue;
      for (const TensorRow& output : facts.run.tensors_of(op.id)) {
        const std::optional<TensorRow> x = facts.run.input(op.id, "x");
        const double bound = x ? double{x->health.absmax} * rest * static_cast<double>(weight.columns)
                               : double{weight.health.absmax} / 2;
        if (output.health.bad() > 0 || double{output.health.absmax} > bound) return output;
      }
    }
  }
  return std::nullopt;
}

FoundFault fault_at(Facts& facts, const TensorRow& output, const WeightRow& weight) {
  FoundFault found;
  found.ops = {output.op};
  found.fault.where = facts.where(output);
  found.fault.evidence = {{"weight", weight.name}, {"absmax", double{weight.health.absmax}}};
  found.fault.fix = "load the weight again and compare its hash with the checkpoint's";
  return found;
}

void add_flipped(Facts& facts, const WeightRow& weight, FaultReport& report) {
  const double rest = rms_of_rest(weight.health);
  const double other = other_extreme(weight.health);
  const std::optional<TensorRow> output = harmed(facts, weight, rest);
  if (!output) return;
  FoundFault found = fault_at(facts, *output, weight);
  found.fault.evidence.push_back({"extreme of the other sign", other});
  found.fault.evidence.push_back({"rms of the others at most", rest});
  found.fault.evidence.push_back({"ratio", double{weight.health.absmax} / other});
  found.fault.summary = fmt::format(
      "one of {} elements of {} is {:.6g} in magnitude where the extreme of the other sign is {:.6g}, as a flipped "
      "exponent bit makes it; {} reaches {:.6g}",
      weight.health.count, weight.name, weight.health.absmax, other, tensor_text(found.fault.where),
      output->health.absmax);
  report.faults.push_back(std::move(found));
}

void add_unscaled(Facts& facts, const WeightRow& weight, Format format, double peers, FaultReport& report) {
  const std::optional<TensorRow> output = harmed(facts, weight, peers);
  if (!output) return;
  FoundFault found = fault_at(facts, *output, weight);
  found.fault.evidence.push_back({"rms", rms(weight.health)});
  found.fault.evidence.push_back({"largest rms in other layers", peers});
  found.fault.summary = fmt::format(
      "the largest element of {} is exactly {:g}, as {} codes have it, and its root mean square {:.4g} is {:.0f} times "
      "that of any other layer: its scale was not applied",
      weight.name, weight.health.absmax, name(format), rms(weight.health), rms(weight.health) / peers);
  found.fault.fix = "look for the weight's scale under another name in the checkpoint, and multiply by it when loading";
  report.faults.push_back(std::move(found));
}

}  // namespace

/// A weight that holds NaN or Inf, one element far beyond all others, or codes without their scale, and was used. One
/// that nothing reads is no fault.
FaultReport detect_weight_corruption(Facts& facts) {
  std::span<const WeightRow> weights = facts.run.weights();
  const auto bad = std::count_if(weights.begin(), weights.end(), [](const WeightRow& w) { return w.health.bad() > 0; });
  const std::string none = fmt::format(
      "{} of {} weights hold NaN or Inf, none of those reached an output; none has one element {:g} times the others, "
      "or is {:g} times the other layers'",
      bad, weights.size(), kLone, kUnscaled);
  FaultReport report = report_births(facts, BirthClass::weight_corruption, "a bad weight was used",
                                     "load the weight again and compare its hash with the checkpoint's", none);
  for (FoundFault& found : report.faults) {
    const SickOp* birth = facts.sick(found.ops.front());
    if (birth != nullptr) found.fault.evidence.push_back({"weight", birth->bad_weight});
  }
  const std::size_t births = report.faults.size();
  for (const WeightRow& weight : weights) {
    if (weight.health.count == 0) continue;
    if (lone_outlier(weight.health)) {
      add_flipped(facts, weight, report);
    } else if (const auto format = unscaled_codes(weights, weight)) {
      add_unscaled(facts, weight, *format, peers_rms(weights, weight), report);
    }
  }
  if (report.faults.size() > births) report.figure = fmt::format("{} weights are corrupt", report.faults.size());
  return report;
}

}  // namespace nanscope
