#pragma once
#include <CLI/CLI.hpp>

#include "instrument/engine/cost.h"

namespace nanscope::cli {

/// Adds --replay-memory and --replay-work, the limits of a replay. `limits` must outlive the command.
void add_replay_limits(CLI::App& command, RunLimits& limits);

}  // namespace nanscope::cli
