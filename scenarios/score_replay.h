#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "instrument/spectral/score_policy.h"
#include "scenarios/score_run.h"

/// What each policy for the scales of attention's scores would have done to the scores of a run.
namespace nanscope::scenarios {

/// What a policy made of one point.
struct ScoreTrialPoint {
  double scale = 0;
  double scaled = 0;  ///< absmax / scale
};

/// Slack of a layer, (16) of "Rank-Aware Spectral Bounds on Attention Logits": the largest score of a step over its
/// worst case. As the paper's appendix M lists it.
struct ScoreSlack {
  std::int64_t layer = 0;
  std::int64_t steps = 0;
  double smallest = 0;
  double largest = 0;
  double mean = 0;
  double quantile = 0;  ///< the settings' quantile
  double alpha = 0;     ///< kappa times which
};
/// By layer: of the first `burn_in` steps that are finite, whose worst case is known.
std::vector<ScoreSlack> slack_by_layer(const ScoreRun& run, const ScorePolicySettings& settings);

struct ScoreTrial {
  std::string policy;
  std::string problem;                  ///< not empty: why it was not tried
  std::vector<ScoreTrialPoint> points;  ///< by ScoreRun::points
  std::int64_t overflows = 0;           ///< points beyond the format's largest
  double largest = 0;                   ///< of `scaled`
  std::size_t worst = 0;                ///< the point of it
  double utilization = 0;               ///< mean of scaled / largest of the format, those that overflow being 1
};

/// A policy as it is tried.
struct PolicyCandidate {
  std::string name;
  const ScorePolicyEntry* entry = nullptr;
  ScorePolicySettings settings;
  bool starts_as_run = true;  ///< its history stands for what the run's does before it has seen a step
};
/// Every policy of score_policies() but `static`, and delayed scaling with TransformerEngine's defaults (1024 steps, no
/// margin, nothing seen is a scale of 1) as `delayed_te`.
std::vector<PolicyCandidate> policy_candidates(const ScorePolicySettings& settings);

/// Points that are not finite are passed over by `delayed` and the others. Where weights change, policies that follow
/// from them follow the new ones; where the run lost its scaling state, all begin anew.
std::vector<ScoreTrial> try_score_policies(const ScoreRun& run, std::span<const PolicyCandidate> policies);

/// Beyond what rounds to the format's largest.
bool overflows(double scaled, double largest);

/// What a policy made of one layer.
struct ScoreLayerTrial {
  std::int64_t layer = 0;
  std::int64_t overflows = 0;
  double largest = 0;
  double utilization = 0;
};
/// By layer; of a trial that has points.
std::vector<ScoreLayerTrial> by_layer(const ScoreTrial& trial, std::span<const ScorePoint> points, double largest);

}  // namespace nanscope::scenarios
