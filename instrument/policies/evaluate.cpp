#include "instrument/policies/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/counted.h"
#include "core/run/kv_cache.h"
#include "instrument/policies/claims.h"

namespace nanscope {
namespace {

/// Of K or V of a layer. What was not quantized in this run, because a group of tokens is not full or all of them are
/// in a window, is counted in 2 bytes an element.
double bytes_of(const KvScheme& scheme, const LayerFacts& layer, bool keys, std::int64_t layers,
                const KvCounts& counts) {
  const std::int64_t width = keys ? layer.shape.key_width : layer.shape.value_width;
  const std::int64_t channels = layer.shape.kv_heads * width;
  const double kept = 2 * static_cast<double>(channels);
  const KvScheme here = scheme_of_layer(scheme, layer.layer, layers);
  if (quantizes(scheme) && (!quantizes(here) || counts.elements == 0)) return kept;
  const double coded = bytes_a_token(here, layer.shape.kv_heads, width, layer.keys);
  if (here.axis != KvAxis::channel || here.group == 0) return coded;
  const double share = static_cast<double>(counts.elements) / static_cast<double>(layer.rows * channels);
  return std::min(1.0, share) * coded + std::max(0.0, 1 - share) * kept;
}

/// Why a candidate cannot be tried on a layer; empty: it can.
std::string problem_of(const PolicyCandidate& candidate, const LayerTokens& tokens) {
  const AttentionGeometry& shape = tokens.shape;
  if (!candidate.needs.empty()) return "it is for " + candidate.needs;
  if (candidate.k_noise == 0 && !candidate.exact_k) {
    if (Status can = check(candidate.k, shape.kv_heads, shape.key_width); !can) return "K: " + can.error().message;
    if (candidate.k.before_rope && tokens.k_before.empty())
      return "it stores keys before their rotary embedding, which the run does not have beside those behind it";
  }
  if (candidate.v_noise == 0 && !candidate.exact_v) {
    if (Status can = check(candidate.v, shape.kv_heads, shape.value_width); !can) return "V: " + can.error().message;
  }
  return {};
}

void summarise(PolicyResult& result, std::span<const LayerFacts> layers, std::int64_t in_all) {
  if (result.layers.empty()) return;
  const auto count = static_cast<double>(result.layers.size());
  result.agreement = 0;
  std::int64_t elements = 0;
  std::int64_t clipped = 0;
  std::int64_t flushed = 0;
  double utilization = 0;
  std::int64_t utilized = 0;
  for (std::size_t i = 0; i < result.layers.size(); ++i) {
    const LayerScore& score = result.layers[i];
    result.error += score.error / count;
    result.divergence += score.divergence / count;
    result.agreement += score.agreement / count;
    result.not_finite += score.not_finite;
    const double worst = result.layers[result.worst].error;
    if (std::isnan(score.error) ? !std::isnan(worst) : score.error > worst) result.worst = i;
    for (const KvCounts* counts : {&score.k, &score.v}) {
      elements += counts->elements;
      clipped += counts->clipped;
      flushed += counts->flushed;
      if (counts->elements == 0) continue;
      utilization += counts->utilization;
      ++utilized;
    }
    result.bytes += bytes_of(result.candidate.k, layers[i], true, in_all, score.k);
    result.bytes += bytes_of(result.candidate.v, layers[i], false, in_all, score.v);
  }
  if (elements > 0) {
    double all = 0;
    for (const LayerFacts& layer : layers)
      all += static_cast<double>(layer.rows * (layer.shape.key_channels() + layer.shape.value_channels()));
    result.quantized = std::min(1.0, static_cast<double>(elements) / all);
    result.clipped = static_cast<double>(clipped) / static_cast<double>(elements);
    result.flushed = static_cast<double>(flushed) / static_cast<double>(elements);
  }
  if (utilized > 0) result.utilization = utilization / static_cast<double>(utilized);
}

double channel_spread(const LayerTokens& tokens) {
  const auto channels = static_cast<std::size_t>(tokens.shape.key_channels());
  const auto width = static_cast<std::size_t>(tokens.shape.key_width);
  std::vector<float> largest(channels);
  for (std::size_t i = 0; i < tokens.k.size(); ++i) {
    const float magnitude = std::fabs(tokens.k[i]);
    if (std::isfinite(magnitude)) largest[i % channels] = std::max(largest[i % channels], magnitude);
  }
  double spread = 0;
  for (std::size_t head = 0; head < channels; head += width) {
    const auto begin = largest.begin() + static_cast<std::ptrdiff_t>(head);
    const auto end = begin + static_cast<std::ptrdiff_t>(width);
    const float most = *std::max_element(begin, end);
    const auto median = begin + static_cast<std::ptrdiff_t>(width / 2);
    std::nth_element(begin, median, end);
    if (*median > 0) spread = std::max(spread, static_cast<double>(most) / static_cast<double>(*median));
  }
  return spread;
}

LayerFacts facts_of(const LayerTokens& tokens, const LayerReference& reference) {
  LayerFacts facts;
  facts.layer = tokens.layer;
  facts.shape = tokens.shape;
  facts.keys = tokens.longest();
  facts.rows = static_cast<std::int64_t>(tokens.k.size()) / tokens.shape.key_channels();
  facts.queries = tokens.queries;
  facts.queries_in_all = tokens.queries_in_all;
  facts.queries_left_out = tokens.queries_left_out;
  facts.rows_not_finite = tokens.rows_not_finite;
  facts.logit_deviation = reference.logit_deviation();
  facts.spikes = reference.spikes();
  facts.channel_spread = channel_spread(tokens);
  facts.recorded_error = reference.recorded_error();
  return facts;
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& one : items) text += (text.empty() ? "" : "; ") + one;
  return text;
}

class Evaluation {
 public:
  Evaluation(RunView& run, const PolicyOptions& options) : run_(run), options_(options), cache_(run) {}

  Result<PolicyReport> evaluate() {
    const std::vector<std::int64_t> all = attention_layers(run_);
    if (all.empty())
      return fail("no attention is known in this run: queries, keys and values of some layer are needed");
    layers_in_all_ = all.back() + 1;
    std::vector<std::int64_t> wanted(options_.layers.begin(), options_.layers.end());
    for (const std::int64_t layer : wanted) {
      if (std::find(all.begin(), all.end(), layer) == all.end())
        return fail(
            fmt::format("layer {}: no attention of it is known; there are {} to {}", layer, all.front(), all.back()));
    }
    if (wanted.empty()) wanted = all;
    add_candidates();
    total_ = wanted.size() * (report_.policies.size() + report_.tried.size());
    std::string reason;
    for (const std::int64_t layer : wanted) {
      Status done = measure(layer);
      if (options_.stop.stop_requested()) return fail("stopped");
      if (done) continue;
      if (reason.empty()) reason = done.error().message;
      report_.left_out.push_back(done.error().message);
    }
    if (report_.layers.empty()) return fail(reason);
    finish(wanted.size());
    return std::move(report_);
  }

 private:
  void add_candidates() {
    const auto add = [](const std::vector<PolicyCandidate>& from, std::vector<PolicyResult>& into) {
      for (const PolicyCandidate& one : from) {
        PolicyResult result;
        result.candidate = one;
        into.push_back(std::move(result));
      }
    };
    add(options_.candidates.empty() ? named_candidates() : options_.candidates, report_.policies);
    if (options_.claims) add(claim_candidates(), report_.tried);
  }

  Status measure(std::int64_t layer) {
    CollectOptions collecting;
    collecting.most_queries = options_.most_queries;
    collecting.again = options_.again;
    if (options_.known) collecting.known = options_.known(layer);
    const auto tokens = collect_layer(run_, cache_, layer, collecting);
    if (!tokens) {
      step(report_.policies.size() + report_.tried.size());
      return tl::unexpected(tokens.error());
    }
    for (const std::string& fact : tokens->facts) facts_[fact].push_back(layer);
    if (tokens->rows_not_finite > 0) {
      report_.left_out.push_back(
          fmt::format("layer {}: {} of K or V {} a NaN or an Inf ({}), stored as zeros; {} that hold one or see one "
                      "are not counted",
                      layer, counted(tokens->rows_not_finite, "row"), tokens->rows_not_finite == 1 ? "holds" : "hold",
                      listed(tokens->left_out),
                      tokens->queries_left_out == 1 ? "1 query" : fmt::format("{} queries", tokens->queries_left_out)));
    }
    const LayerReference reference(*tokens);
    for (std::vector<PolicyResult>* results : {&report_.policies, &report_.tried}) {
      for (PolicyResult& result : *results) {
        if (result.problem.empty()) result.problem = problem_of(result.candidate, *tokens);
        if (result.problem.empty()) {
          auto score = score_layer(reference, result.candidate, layers_in_all_, options_.stop);
          if (options_.stop.stop_requested()) return fail("stopped");
          if (score) {
            result.layers.push_back(*score);
          } else {
            result.problem = score.error().message;
          }
        }
        if (!result.problem.empty()) result.layers.clear();
        step(1);
      }
    }
    report_.layers.push_back(facts_of(*tokens, reference));
    return {};
  }

  void step(std::size_t count) {
    done_ += count;
    if (options_.progress) options_.progress(done_, total_);
  }

  void finish(std::size_t wanted) {
    for (std::vector<PolicyResult>* results : {&report_.policies, &report_.tried}) {
      for (PolicyResult& result : *results) summarise(result, report_.layers, layers_in_all_);
    }
    mark_front(report_.policies);
    for (const LayerFacts& layer : report_.layers)
      report_.kept_bytes += 2 * static_cast<double>(layer.shape.key_channels() + layer.shape.value_channels());
    for (const auto& [fact, layers] : facts_) {
      std::string which;
      if (layers.size() < std::min(wanted, report_.layers.size()))
        which = fmt::format(" (layers {})", fmt::join(layers, ", "));
      report_.facts.push_back(fact + which);
    }
    if (options_.claims) report_.claims = test_claims(report_.tried, report_.layers);
  }

  RunView& run_;
  const PolicyOptions& options_;
  KvCache cache_;
  PolicyReport report_;
  std::map<std::string, std::vector<std::int64_t>> facts_;
  std::int64_t layers_in_all_ = 0;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
};

}  // namespace

std::string_view to_string(ClaimVerdict verdict) {
  switch (verdict) {
    case ClaimVerdict::confirmed:
      return "confirmed";
    case ClaimVerdict::refuted:
      return "refuted";
    case ClaimVerdict::not_testable:
      break;
  }
  return "not testable here";
}

void mark_front(std::span<PolicyResult> policies) {
  const auto counts = [](const PolicyResult& one) {
    return one.problem.empty() && !one.layers.empty() && one.not_finite == 0 && std::isfinite(one.error);
  };
  for (PolicyResult& one : policies) {
    one.on_front = counts(one) && std::none_of(policies.begin(), policies.end(), [&](const PolicyResult& other) {
                     return counts(other) && other.bytes <= one.bytes && other.error <= one.error &&
                            (other.bytes < one.bytes || other.error < one.error);
                   });
  }
}

Result<PolicyReport> evaluate_policies(RunView& run, const PolicyOptions& options) {
  return Evaluation(run, options).evaluate();
}

}  // namespace nanscope
