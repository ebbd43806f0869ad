#pragma once
#include <functional>
#include <string>

#include "cli/interrupt.h"
#include "core/recording/reader.h"
#include "core/result.h"
#include "scenarios/analysis.h"
#include "scenarios/counterfactuals.h"

namespace nanscope::cli {

/// Receives each outcome when its run ends, first that of the unchanged run. False: stop.
using OutcomeReader = std::function<bool(const scenarios::Outcome&)>;

/// Runs the counterfactuals of a recording with a progress line. After a stop, the result holds the runs so far.
/// Errors: a run would exceed `limits`; stopped before the first run ended.
Result<scenarios::Counterfactuals> investigate(const Recording& recording, const Interrupt& interrupt,
                                               const RunLimits& limits, const OutcomeReader& reader = {});

/// Complains of changes for which memory ran out. Returns whether there were any: the answer is not whole then.
bool complain_unrun(const std::string& target, const scenarios::Counterfactuals& changes);

/// The reason why a run has no counterfactuals; empty: it has them.
std::string why_none(const scenarios::Analysis& analysis);

}  // namespace nanscope::cli
