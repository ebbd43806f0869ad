#include "scenarios/score_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "core/counted.h"

namespace nanscope::scenarios {
namespace {

// Within half a step of the largest code the cast rounds to it: 448 of e4m3 is 14 steps of 32.
constexpr double kRoundsDown = 1 + 1.0 / 28;

/// The policy of one layer, as a run goes on.
class LayerPolicy {
 public:
  LayerPolicy(const PolicyCandidate& candidate, const ScoreRun& run, std::int64_t layer) : candidate_(candidate) {
    for (const ScoreBounds& one : run.bounds) {
      if (one.layer == layer) bounds_.push_back(one);
    }
    losses_ = run.losses;
    losses_.insert(losses_.begin(), {std::numeric_limits<StepId>::min(), run.start});
  }

  bool can_be_tried() const { return !candidate_.entry->of_weights || !bounds_.empty(); }

  /// Whether the last scale was that of a policy which had seen what it watches first.
  bool settled() const { return settled_; }

  double scale(const ScorePoint& point) {
    const std::size_t before = next_bound_;
    while (next_bound_ < bounds_.size() && bounds_[next_bound_].from <= point.step) ++next_bound_;
    const std::size_t lost = next_loss_;
    while (next_loss_ < losses_.size() && losses_[next_loss_].from <= point.step) ++next_loss_;
    const bool bounded = next_bound_ > 0;
    const ScoreBounds now = bounded ? bounds_[next_bound_ - 1] : ScoreBounds{};
    if (next_loss_ != lost) {
      ScorePolicySettings settings = candidate_.settings;
      if (candidate_.starts_as_run) settings.start = losses_[next_loss_ - 1].start;
      settings.worst_case = now.worst_case;
      settings.calibrated = now.calibrated;
      policy_ = candidate_.entry->make(settings);
    } else if (next_bound_ != before) {
      policy_->weights_changed(now.worst_case, now.calibrated);
    }
    settled_ = policy_->settled();
    const double scale = policy_->scale(point.absmax);
    policy_->seen(point.absmax);
    return scale;
  }

 private:
  const PolicyCandidate& candidate_;
  std::vector<ScoreBounds> bounds_;  ///< of the layer
  std::vector<ScoreLoss> losses_;    ///< the first is the run's beginning
  std::size_t next_bound_ = 0;
  std::size_t next_loss_ = 0;
  std::unique_ptr<ScorePolicy> policy_;
  bool settled_ = true;
};

ScoreTrial try_one(const PolicyCandidate& candidate, const ScoreRun& run) {
  ScoreTrial trial;
  trial.policy = candidate.name;
  const double largest = candidate.settings.largest;
  std::map<std::int64_t, LayerPolicy> layers;
  double used = 0;
  std::size_t counted = 0;
  bool settled = false;
  for (std::size_t i = 0; i < run.points.size(); ++i) {
    const ScorePoint& point = run.points[i];
    LayerPolicy& policy = layers.try_emplace(point.layer, candidate, run, point.layer).first->second;
    if (!policy.can_be_tried()) {
      trial.problem = run.unbounded;
      trial.points.clear();
      return trial;
    }
    if (!point.finite) {
      trial.points.push_back({});
      continue;
    }
    const double scale = policy.scale(point);
    settled = settled || policy.settled();
    const ScoreTrialPoint made{scale, point.absmax / scale};
    trial.points.push_back(made);
    ++counted;
    used += std::min(1.0, made.scaled / largest);
    if (overflows(made.scaled, largest)) ++trial.overflows;
    if (made.scaled <= trial.largest) continue;
    trial.largest = made.scaled;
    trial.worst = i;
  }
  if (counted > 0) trial.utilization = used / static_cast<double>(counted);
  if (!settled && counted > 0) {
    trial = {.policy = candidate.name, .problem = {}, .points = {}};
    trial.problem = fmt::format("its burn-in of {} is not over", nanscope::counted(candidate.settings.burn_in, "step"));
  }
  return trial;
}

}  // namespace

bool overflows(double scaled, double largest) { return scaled > largest * kRoundsDown; }

std::vector<PolicyCandidate> policy_candidates(const ScorePolicySettings& settings) {
  std::vector<PolicyCandidate> all;
  for (const ScorePolicyEntry& entry : score_policies()) {
    // A number of somebody's says nothing about a policy.
    if (entry.name == "static") continue;
    all.push_back({std::string(entry.name), &entry, settings, true});
    if (entry.name != "delayed") continue;
    ScorePolicySettings defaults = settings;
    defaults.history = 1024;
    defaults.margin = 1;
    defaults.start = settings.largest;
    all.push_back({"delayed_te", &entry, defaults, false});
  }
  return all;
}

std::vector<ScoreTrial> try_score_policies(const ScoreRun& run, std::span<const PolicyCandidate> policies) {
  std::vector<ScoreTrial> trials;
  for (const PolicyCandidate& policy : policies) trials.push_back(try_one(policy, run));
  return trials;
}

std::vector<ScoreSlack> slack_by_layer(const ScoreRun& run, const ScorePolicySettings& settings) {
  std::map<std::int64_t, std::vector<double>> slacks;
  for (const ScorePoint& point : run.points) {
    double worst_case = 0;
    for (const ScoreBounds& one : run.bounds) {
      if (one.layer == point.layer && one.from <= point.step) worst_case = one.worst_case;
    }
    std::vector<double>& of_layer = slacks[point.layer];
    if (point.finite && worst_case > 0 && std::ssize(of_layer) < settings.burn_in)
      of_layer.push_back(point.absmax / worst_case);
  }
  std::vector<ScoreSlack> all;
  for (const auto& [layer, values] : slacks) {
    if (values.empty()) continue;
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    const double quantile = quantile_of(values, settings.quantile);
    all.push_back({.layer = layer,
                   .steps = std::ssize(values),
                   .smallest = *std::min_element(values.begin(), values.end()),
                   .largest = *std::max_element(values.begin(), values.end()),
                   .mean = sum / static_cast<double>(values.size()),
                   .quantile = quantile,
                   .alpha = settings.kappa * quantile});
  }
  return all;
}

std::vector<ScoreLayerTrial> by_layer(const ScoreTrial& trial, std::span<const ScorePoint> points, double largest) {
  struct Sum {
    ScoreLayerTrial layer;
    std::size_t counted = 0;
  };
  std::map<std::int64_t, Sum> layers;
  for (std::size_t i = 0; i < trial.points.size(); ++i) {
    if (!points[i].finite) continue;
    const double scaled = trial.points[i].scaled;
    Sum& sum = layers[points[i].layer];
    sum.layer.overflows += overflows(scaled, largest) ? 1 : 0;
    sum.layer.largest = std::max(sum.layer.largest, scaled);
    sum.layer.utilization += std::min(1.0, scaled / largest);
    ++sum.counted;
  }
  std::vector<ScoreLayerTrial> all;
  for (auto& [layer, sum] : layers) {
    sum.layer.layer = layer;
    sum.layer.utilization /= static_cast<double>(sum.counted);
    all.push_back(sum.layer);
  }
  return all;
}

}  // namespace nanscope::scenarios
