#include "scenarios/score_replay.h"

#include <algorithm>
#include <map>
#include <memory>

namespace nanscope::scenarios {
namespace {

const ScoreBounds* bounds_of(std::span<const ScoreBounds> bounds, std::int64_t layer) {
  const auto found =
      std::find_if(bounds.begin(), bounds.end(), [&](const ScoreBounds& one) { return one.layer == layer; });
  return found == bounds.end() ? nullptr : &*found;
}

ScoreTrial try_one(const PolicyCandidate& candidate, std::span<const ScorePoint> points,
                   std::span<const ScoreBounds> bounds) {
  ScoreTrial trial;
  trial.policy = candidate.name;
  const double largest = candidate.settings.largest;
  std::map<std::int64_t, std::unique_ptr<ScorePolicy>> layers;
  double used = 0;
  std::size_t counted = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const ScorePoint& point = points[i];
    std::unique_ptr<ScorePolicy>& policy = layers[point.layer];
    if (policy == nullptr) {
      ScorePolicySettings settings = candidate.settings;
      if (candidate.entry->of_weights) {
        const ScoreBounds* bound = bounds_of(bounds, point.layer);
        if (bound == nullptr) {
          trial.problem = "the weights are not known";
          trial.points.clear();
          return trial;
        }
        settings.worst_case = bound->worst_case;
        settings.calibrated = bound->calibrated;
      }
      policy = candidate.entry->make(settings);
    }
    if (!point.finite) {
      trial.points.push_back({});
      continue;
    }
    const double scale = policy->scale(point.absmax);
    const ScoreTrialPoint made{scale, point.absmax / scale};
    trial.points.push_back(made);
    ++counted;
    used += std::min(1.0, made.scaled / largest);
    // Within half a step of the largest code the cast rounds to it.
    if (made.scaled > largest * (1 + 1.0 / 28)) ++trial.overflows;
    if (made.scaled <= trial.largest) continue;
    trial.largest = made.scaled;
    trial.worst = i;
  }
  if (counted > 0) trial.utilization = used / static_cast<double>(counted);
  return trial;
}

}  // namespace

std::vector<ScorePoint> scores_of(RunView& run) {
  std::vector<ScorePoint> points;
  for (const Step& step : run.steps()) {
    if (step.rank != 0) continue;
    for (const Op& op : run.content(step.id).ops) {
      if (op.kind != OpKind::attention_scores || !op.layer) continue;
      const Tensor* scores = run.result(op);
      if (scores == nullptr || !scores->known || scores->stated) continue;
      points.push_back({step.id, *op.layer, double{scores->health.absmax}, scores->health.bad() == 0 || scores->hides});
    }
  }
  return points;
}

std::vector<PolicyCandidate> policy_candidates(const ScorePolicySettings& settings) {
  std::vector<PolicyCandidate> all;
  for (const ScorePolicyEntry& entry : score_policies()) {
    // A number of somebody's says nothing about a policy.
    if (entry.name == "static") continue;
    all.push_back({std::string(entry.name), &entry, settings});
    if (entry.name != "delayed") continue;
    ScorePolicySettings defaults = settings;
    defaults.history = 1024;
    defaults.margin = 1;
    defaults.start = settings.largest;
    all.push_back({"delayed_te", &entry, defaults});
  }
  return all;
}

std::vector<ScoreTrial> try_score_policies(std::span<const ScorePoint> points, std::span<const ScoreBounds> bounds,
                                           std::span<const PolicyCandidate> policies) {
  std::vector<ScoreTrial> trials;
  for (const PolicyCandidate& policy : policies) trials.push_back(try_one(policy, points, bounds));
  return trials;
}

}  // namespace nanscope::scenarios
