#pragma once
#include <memory>
#include <string>

#include "cli/interrupt.h"
#include "core/result.h"
#include "scenarios/analysis.h"
#include "scenarios/open_run.h"

namespace nanscope::cli {

struct TargetOptions {
  bool progress = false;             ///< show the line even if standard error is not a terminal
  RunLimits limits = kReplayLimits;  ///< of a replay
  bool follow_links = false;         ///< also follow links that lead out of the dump's folder
  std::string model = {};            ///< the folder of a dump's checkpoint; empty: none
  const DumpFacts* facts = nullptr;  ///< of a dump, spare reading; must outlive the run
  bool facts_only = false;           ///< tensors without facts are not looked at
};

/// Opens a recording or a dump with a progress line, and reports a dump's unread files on standard error. Errors: not a
/// recording or dump, unreadable, a model for a recording, stopped.
Result<std::unique_ptr<scenarios::OpenRun>> open_target(const std::string& path, const Interrupt& interrupt,
                                                        const TargetOptions& options = {});

/// Diagnoses a target, with a progress line; for a recording, also computes its digest.
Result<scenarios::Analysis> analyse_target(scenarios::OpenRun& target, const Interrupt& interrupt,
                                           bool recompute = true, bool progress = false);

/// Prints an error. Returns Interrupt::code() after a signal, else kBadInput.
int failed(const Error& error, const Interrupt& interrupt);

}  // namespace nanscope::cli
