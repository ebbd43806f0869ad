#pragma once
#include <string>

#include "instrument/spectral/model_scales.h"
#include "scenarios/report/text.h"
#include "scenarios/score_replay.h"

/// What `nanscope scales` says.
namespace nanscope::report {

std::string scales_text(const ModelScales& scales, const std::string& checkpoint, bool per_head,
                        const Terminal& terminal);
/// `nanscope.scales/1`, see docs/scales.md.
std::string scales_json(const ModelScales& scales, const std::string& checkpoint);
/// A line a head, its layer's figures repeated.
std::string scales_csv(const ModelScales& scales);

/// Tables 2 and 3 of the paper: ours beside what is printed, of one model or of all where `name` is empty.
std::string published_shapes_text(std::string_view name, double delta, const Terminal& terminal);

/// Policies beside each other on the scores of a run.
struct ScoreReplayWords {
  std::string target;
  std::span<const scenarios::ScorePoint> points;
  std::span<const scenarios::ScoreTrial> trials;
  ScorePolicySettings settings;
  std::vector<scenarios::ScoreSlack> slacks = {};  ///< by layer; empty where no worst case is known
};
std::string score_replay_text(const ScoreReplayWords& words, RunView& run, const Terminal& terminal);
/// `nanscope.score-policies/1`, see docs/scales.md.
std::string score_replay_json(const ScoreReplayWords& words);
/// A line a step and layer: its largest score, then scale and scaled score of each policy.
std::string score_replay_csv(const ScoreReplayWords& words);

}  // namespace nanscope::report
