#pragma once
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/run_view.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/prepared.h"
#include "scenarios/score_replay.h"

namespace nanscope::gui {

/// A layer's scores under each policy for their scale, over the steps of the run.
struct ScoreLayerCurves {
  std::int64_t layer = 0;
  std::vector<std::size_t> points;      ///< indices in ScoreCurves::points
  std::vector<std::int64_t> overflows;  ///< by trial
};

struct ScoreCurves final : Prepared {
  std::vector<scenarios::ScorePoint> points;
  std::vector<std::size_t> step_of;  ///< of each point, its index in `steps`
  std::vector<LedgerStep> steps;     ///< that have scores
  std::vector<LedgerBand> bands;
  std::vector<ScoreLayerCurves> layers;
  std::vector<scenarios::ScoreTrial> trials;  ///< those that could be tried
  double largest = 448;                       ///< of the format
  LogRange scaled;                            ///< of all that is drawn
  LogRange scales;
  std::string headline;  ///< who overflows how often, in a sentence
  std::string caveat;    ///< what was not tried; empty where all were
};

/// Errors: rows or the run's weights cannot be read, or it was stopped.
Result<ScoreCurves> make_score_curves(RunView& run, const Recording* recording, std::stop_token stop);

}  // namespace nanscope::gui
