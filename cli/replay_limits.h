#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "instrument/engine/cost.h"

namespace nanscope::cli {

/// Adds --replay-memory and --replay-work, the limits of `what`. `limits` must outlive the command.
void add_run_limits(CLI::App& command, RunLimits& limits, const std::string& what);
/// The same for a replay.
void add_replay_limits(CLI::App& command, RunLimits& limits);

}  // namespace nanscope::cli
