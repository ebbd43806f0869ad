#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/spectral/layer_scales.h"
#include "instrument/spectral/score_policy.h"

/// What each policy for the scales of attention's scores would have done to the scores of a run.
namespace nanscope::scenarios {

/// The scores of a layer in a step: of one sequence, where a step has several.
struct ScorePoint {
  StepId step = 0;
  std::int64_t layer = 0;
  double absmax = 0;   ///< over what is finite
  bool finite = true;  ///< none was NaN or Inf
};

/// In order of execution. Empty where no scores were recorded or dumped.
std::vector<ScorePoint> scores_of(RunView& run);

/// What a policy made of one point.
struct ScoreTrialPoint {
  double scale = 0;
  double scaled = 0;  ///< absmax / scale
};

struct ScoreTrial {
  std::string policy;
  std::string problem;                  ///< not empty: why it was not tried
  std::vector<ScoreTrialPoint> points;  ///< by that of scores_of()
  std::int64_t overflows = 0;           ///< points beyond the format's largest
  double largest = 0;                   ///< of `scaled`
  std::size_t worst = 0;                ///< the point of it
  double utilization = 0;               ///< mean of scaled / largest of the format, those that overflow being 1
};

/// Bounds of a layer's scores by the weights; not given: they are not known.
struct ScoreBounds {
  std::int64_t layer = 0;
  double worst_case = 0;
  double calibrated = 0;
};

/// A policy as it is tried.
struct PolicyCandidate {
  std::string name;
  const ScorePolicyEntry* entry = nullptr;
  ScorePolicySettings settings;
};
/// Every policy of score_policies() but `static`, and delayed scaling with TransformerEngine's defaults (1024 steps, no
/// margin, nothing seen is a scale of 1) as `delayed_te`.
std::vector<PolicyCandidate> policy_candidates(const ScorePolicySettings& settings);

/// Points that are not finite are passed over by `delayed` and the others.
std::vector<ScoreTrial> try_score_policies(std::span<const ScorePoint> points, std::span<const ScoreBounds> bounds,
                                           std::span<const PolicyCandidate> policies);

}  // namespace nanscope::scenarios
