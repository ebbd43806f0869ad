#pragma once
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/spectral/model_scales.h"

/// What policies for the scales of attention's scores are tried on: the scores of a run, and what bounds them.
namespace nanscope::scenarios {

/// The scores of a layer in a step: of one sequence, where a step has several.
struct ScorePoint {
  StepId step = 0;
  std::int64_t layer = 0;
  double absmax = 0;   ///< over what is finite, before any mask
  bool finite = true;  ///< none was NaN or Inf
};

/// Bounds of a layer's scores by the weights that steps from `from` on read.
struct ScoreBounds {
  StepId from = 0;
  std::int64_t layer = 0;
  double worst_case = 0;  ///< LayerScales::whole().interaction
  double calibrated = 0;
};

/// The run lost its scaling state before a step, and a history stands for `start` from then on.
struct ScoreLoss {
  StepId from = 0;
  double start = 1;
};

struct ScoreRun {
  std::vector<ScorePoint> points;   ///< in order of execution
  std::vector<ScoreBounds> bounds;  ///< `from` ascending; of a layer that has none, the weights are not known
  std::vector<ScoreLoss> losses;    ///< ascending
  ModelScales weights;              ///< of those that the run began with; without layers where they are not known
  std::string unbounded = "the weights are not known";  ///< why `bounds` are missing, where they are
  double start = 1;  ///< what a history stands for as the run begins: scores.start where it has one
};

/// In order of execution; all sequences of a training step are one point a layer. Empty where no scores were recorded
/// or dumped.
std::vector<ScorePoint> scores_of(RunView& run);

struct ScoreRunOptions {
  ScaleSettings settings;
  std::filesystem::path checkpoint;  ///< whose weights the run had; empty: those of the recorded configuration
  std::stop_token stop;
};

/// `recording` is null for a dump. Without a checkpoint, weights are made again as the recorded configuration says,
/// with the changes of its transients. Errors: those of the view, of the checkpoint, of the weights, or that it was
/// stopped.
Result<ScoreRun> score_run(RunView& run, const Recording* recording, const ScoreRunOptions& options);

}  // namespace nanscope::scenarios
