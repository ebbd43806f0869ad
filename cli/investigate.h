#pragma once
#include "cli/interrupt.h"
#include "core/recording/reader.h"
#include "core/result.h"
#include "scenarios/counterfactuals.h"

namespace nanscope::cli {

/// Runs the counterfactuals of a recording with a progress line, until they are done or interrupted. Errors: it, or one
/// of them, would take more than `limits`.
Result<scenarios::Counterfactuals> investigate(const Recording& recording, const Interrupt& interrupt,
                                               const RunLimits& limits);

}  // namespace nanscope::cli
