#pragma once
#include <string>
#include <vector>

#include "instrument/live/live_options.h"

namespace nanscope::cli {

/// Runs a command with the library that records what it does on the GPU, and gives its exit code: 128 and the signal's
/// number when one ended it, 2 when it cannot be started. Says where the recording is, or that there is none.
int run_attached(const std::vector<std::string>& command, const live::LiveOptions& options);

}  // namespace nanscope::cli
