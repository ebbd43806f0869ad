#pragma once
#include <memory>
#include <string>

#include "cli/interrupt.h"
#include "core/result.h"
#include "scenarios/analysis.h"
#include "scenarios/open_run.h"

namespace nanscope::cli {

/// Opens a recording or a dump with a progress line, and says on standard error what of a dump could not be read.
/// `limits`: of a replay. `progress`: the line is wanted where standard error is no terminal, too. `follow_links`:
/// those of a dump that lead out of it.
Result<std::unique_ptr<scenarios::OpenRun>> open_target(const std::string& path, const Interrupt& interrupt,
                                                        bool progress = false, const RunLimits& limits = kReplayLimits,
                                                        bool follow_links = false);

/// What is said about a target, with a progress line; of a recording with its digest.
Result<scenarios::Analysis> analyse_target(scenarios::OpenRun& target, const Interrupt& interrupt,
                                           bool recompute = true, bool progress = false);

/// Prints an error; Interrupt::code() after a signal, else kBadInput.
int failed(const Error& error, const Interrupt& interrupt);

}  // namespace nanscope::cli
