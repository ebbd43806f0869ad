#pragma once
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "instrument/live/live_options.h"

namespace nanscope::cli {

/// Runs a command with the library that records what it does on the GPU, and gives its exit code: 128 and the signal's
/// number when one ended it, 2 when it cannot be started. A signal to this program is passed on to the command and all
/// it started; what has not ended some seconds later is killed. Those of the keyboard reach the command by themselves,
/// and it answers them as it likes. `replace`: an existing recording stays until the command has ended and there is a
/// new one. Says that there is no recording where there is none.
int run_attached(const std::vector<std::string>& command, live::LiveOptions options, bool replace,
                 Interrupt& interrupt);

}  // namespace nanscope::cli
