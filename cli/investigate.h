#pragma once
#include <functional>
#include <string>

#include "cli/interrupt.h"
#include "core/recording/reader.h"
#include "core/result.h"
#include "scenarios/analysis.h"
#include "scenarios/counterfactuals.h"

namespace nanscope::cli {

/// Called with each outcome as its run ends, first with the run as recorded. False: nobody waits for the rest.
using OutcomeReader = std::function<bool(const scenarios::Outcome&)>;

/// Runs the counterfactuals of a recording with a progress line, until they are done, or stopped: what was run by then
/// is in the answer. Errors: the run, or one of them, would take more than `limits`; stopped before anything was run.
Result<scenarios::Counterfactuals> investigate(const Recording& recording, const Interrupt& interrupt,
                                               const RunLimits& limits, const OutcomeReader& reader = {});

/// Why a run has no counterfactuals; empty: it has.
std::string why_none(const scenarios::Analysis& analysis);

}  // namespace nanscope::cli
