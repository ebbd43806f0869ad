#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {
namespace {

/// The tensor that the weights were renormalised from.
std::optional<TensorIndex> scores_before(const DumpFacts& facts, TensorIndex weights) {
  for (const std::string_view role : {"router_scores", "router_logits"}) {
    const auto found = facts.in_layer(weights, role);
    if (found && *found != weights) return found;
  }
  return std::nullopt;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// The sum of the k largest of (sigmoid(x) + bias) - bias in f32, where adding the bias first rounds away what is
/// small.
struct TopSum {
  double cancelled = 0;  ///< as the server computed it
  double exact = 0;      ///< of the sigmoids themselves
};
TopSum top_sum(std::span<const float> logits, std::span<const float> bias, std::size_t k) {
  std::vector<std::pair<float, float>> scores;  // chosen by, sigmoid
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const float gate = sigmoid(logits[e]);
    scores.emplace_back(bias.empty() ? gate : gate + bias[e], gate);
  }
  std::vector<std::size_t> order(scores.size());
  for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(k, order.size())), order.end(),
                    [&](std::size_t a, std::size_t b) { return scores[a].first > scores[b].first; });
  TopSum sum;
  for (std::size_t i = 0; i < std::min(k, order.size()); ++i) {
    const std::size_t e = order[i];
    sum.cancelled += double{bias.empty() ? scores[e].first : scores[e].first - bias[e]};
    sum.exact += double{scores[e].second};
  }
  return sum;
}

}  // namespace

/// Weights of the chosen experts that add up to zero, divided by their sum: 0/0.
DumpReport detect_router_cancellation(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  const std::vector<TensorIndex> all = facts.all("router_weights");
  for (const TensorIndex i : all) {
    const DumpTensor& weights = facts.tensor(i);
    if (weights.health.nan + weights.health.pos_inf == 0 || explained.has(i)) continue;
    const std::optional<TensorIndex> before = scores_before(facts, i);
    if (before && facts.symptomatic(*before)) continue;
    const std::vector<std::int64_t> rows = facts.bad_rows(i);
    if (rows.empty()) continue;
    // What is added and taken off again is what cancels.
    DumpFinding finding = finding_at(facts, facts.in_layer(i, "router_bias").value_or(i), {i}, rows);
    finding.fault.evidence = {{"rows", static_cast<std::int64_t>(rows.size())},
                              {"of", weights.rows()},
                              {"experts_chosen", weights.channels()}};
    std::string proof = "what goes in is not in the dump";
    if (before) {
      const DumpTensor& scores = facts.tensor(*before);
      const auto values = facts.values(*before);
      const auto bias_at = facts.in_layer(i, "router_bias");
      const auto bias = bias_at ? facts.values(*bias_at) : nullptr;
      const auto width = static_cast<std::size_t>(scores.channels());
      if (values && static_cast<std::size_t>(rows.front() + 1) * width <= values->size()) {
        const auto row = std::span(*values).subspan(static_cast<std::size_t>(rows.front()) * width, width);
        const bool usable = bias && bias->size() == width;
        const TopSum sum = top_sum(row, usable ? std::span(*bias) : std::span<const float>(),
                                   static_cast<std::size_t>(weights.channels()));
        finding.fault.evidence.push_back({"sum_as_computed", sum.cancelled});
        finding.fault.evidence.push_back({"sum_exact", sum.exact});
        proof = fmt::format(
            "{} is finite; the {} largest gates of row {} add up to {:.3g}{}", scores.name, weights.channels(),
            rows.front(), sum.cancelled,
            usable ? fmt::format(" after the bias was added and taken off again ({:.3g} without)", sum.exact) : "");
      }
    }
    finding.fault.summary = fmt::format("{} of {} rows of {} are NaN or Inf after renormalising: {}", rows.size(),
                                        weights.rows(), weights.name, proof);
    finding.fault.fix = "take the weights from the gates before the bias, and add an epsilon to the sum (1e-20)";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure = fmt::format("{} of {} dumped sets of expert weights hold NaN that finite gates went into",
                              report.findings.size(), all.size());
  return report;
}

}  // namespace nanscope::dump_detectors
