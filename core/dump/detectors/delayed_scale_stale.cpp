#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/dump/clipping.h"
#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"

namespace nanscope::dump_detectors {
namespace {

constexpr double kLeastMargin = 0.5;  ///< of the largest code that delayed scaling aims at: 0.8, 0.9 and 1 are in use
constexpr double kMostMargin = 1.05;

/// A use of a delayed scale, and the history that it was computed from.
struct Delayed {
  TensorIndex shown = 0;  ///< the codes, or the values that were to be cast
  TensorIndex scale = 0;
  double value = 0;    ///< of the scale
  double history = 0;  ///< largest entry
  double absmax = 0;   ///< of the values now
  std::string from;    ///< what the history is
};

/// margin = history / (scale x largest): how much of the range the history was given.
bool derived(double history, double scale, double largest) {
  const double margin = history / (scale * largest);
  return margin >= kLeastMargin && margin <= kMostMargin;
}

std::optional<Quantized> cast_of(DumpFacts& facts, TensorIndex scale) {
  for (const Quantized& quantized : quantized_tensors(facts)) {
    if (quantized.scale == scale) return quantized;
  }
  return std::nullopt;
}

/// The values before the cast and the scale of each use, by the scale's tensor.
std::optional<TensorIndex> scaled_values(DumpFacts& facts, TensorIndex scale) {
  const std::string& role = facts.tensor(scale).at.role;
  // What went into the cache lies behind the rotary embedding.
  const auto cast = role == "k_scale" || role == "v_scale" ? cast_of(facts, scale) : std::nullopt;
  if (cast && cast->source) return cast->source;
  if (role == "score_scale") return facts.in_layer(scale, "scores");
  if (role == "q_scale" || role == "k_scale" || role == "v_scale") return facts.in_layer(scale, role.substr(0, 1));
  if (role == "prob_scale") return facts.in_layer(scale, "probs");
  if (role == "weight_scale") return facts.of_module(scale, "weight_dequant");
  if (role != "input_scale" && role != "output_scale") return std::nullopt;
  for (const TensorIndex i : facts.members(facts.pass_of(scale))) {
    const TensorName& at = facts.tensor(i).at;
    const Port wanted = role == "input_scale" ? Port::input : Port::output;
    if (at.module == facts.tensor(scale).at.module && at.port == wanted && at.role != "x_codes") return i;
  }
  return std::nullopt;
}

/// From amax_history where it was dumped, else from the largest values of the passes before.
std::optional<Delayed> delayed_use(DumpFacts& facts, TensorIndex scale, double largest) {
  const auto value = facts.scalar(scale);
  const auto values = scaled_values(facts, scale);
  if (!value || !(*value > 0) || !values || facts.pass_of(*values) != facts.pass_of(scale)) return std::nullopt;
  const std::optional<Quantized> cast = cast_of(facts, scale);
  Delayed use{cast ? cast->codes : *values, scale, double{*value}, 0, double{facts.tensor(*values).health.absmax}, {}};
  std::optional<TensorIndex> history = facts.of_module(scale, "amax_history");
  if (!history) history = facts.in_layer(scale, "amax_history");
  if (history) {
    use.history = double{facts.tensor(*history).health.absmax};
    use.from = facts.tensor(*history).name;
    return derived(use.history, use.value, largest) ? std::optional(use) : std::nullopt;
  }
  for (const TensorIndex before : facts.history(*values)) {
    if (before >= *values) break;
    use.history = std::max(use.history, double{facts.tensor(before).health.absmax});
    use.from = facts.tensor(before).name;
  }
  // A scale that never moved is a locked one, not one that follows a history.
  bool moved = false;
  for (const TensorIndex before : facts.history(scale)) {
    const auto then = facts.scalar(before);
    moved = moved || (before < scale && then && *then != *value);
  }
  return moved && derived(use.history, use.value, largest) ? std::optional(use) : std::nullopt;
}

/// How much a weight of the layer grew since the pass before, 1 when none was dumped twice.
double weight_growth(DumpFacts& facts, TensorIndex scale) {
  double growth = 1;
  for (const TensorIndex i : facts.all("weight")) {
    if (facts.tensor(i).at.layer != facts.tensor(scale).at.layer || facts.pass_of(i) != facts.pass_of(scale)) continue;
    for (const TensorIndex before : facts.history(i)) {
      const double then = double{facts.tensor(before).health.absmax};
      if (before < i && then > 0) growth = std::max(growth, double{facts.tensor(i).health.absmax} / then);
    }
  }
  return growth;
}

}  // namespace

/// A scale from a history of largest values that the weights have left behind: loaded anew, or jumped in a step.
DumpReport detect_delayed_scale_stale(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t looked_at = 0;
  double least = INFINITY;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const std::string& role = facts.tensor(i).at.role;
    if (!role.ends_with("_scale") || explained.has(i)) continue;
    const std::optional<Quantized> cast = cast_of(facts, i);
    const Format format = cast ? *facts.tensor(cast->codes).format : Format::e4m3;
    const double largest = double{info(format).max_finite};
    const std::optional<Delayed> use = delayed_use(facts, i, largest);
    if (!use) continue;
    ++looked_at;
    const double headroom = largest * use->value / use->absmax;
    least = std::min(least, headroom);
    // Half a gap beyond the largest code still rounds to it; a drift within the margin is what delaying accepts.
    if (headroom >= 0.95 || explained.has(use->shown)) continue;
    const double growth = weight_growth(facts, i);
    DumpFinding finding = finding_at(facts, i, {use->shown});
    finding.fault.evidence = {{"scale", use->value},
                              {"history_absmax", use->history},
                              {"absmax", use->absmax},
                              {"headroom", headroom},
                              {"largest_scaled", use->absmax / use->value},
                              {"weights_grew", growth}};
    finding.fault.summary = fmt::format(
        "{} is computed from largest values of at most {:.6g} ({}), but they are {:.6g} now: {:.6g} after scaling, "
        "where {:g} is the largest{}",
        facts.tensor(i).name, use->history, use->from, use->absmax, use->absmax / use->value, largest,
        growth > 1.5 ? fmt::format("; a weight of the layer grew {:.3g} times since", growth) : "");
    finding.fault.fix =
        "compute the scale from these values, or bound it by the weights, after weights are loaded or jump";
    finding.fault.breaks = cast && facts.tensor(cast->codes).bad();
    report.findings.push_back(std::move(finding));
  }
  report.figure = looked_at == 0 ? std::string("no scale that follows a history of largest values was dumped")
                                 : fmt::format("the least headroom of {} delayed scales is {:.3g}", looked_at, least);
  return report;
}

}  // namespace nanscope::dump_detectors
