#pragma once
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "instrument/live/live_options.h"

namespace nanscope::cli {

/// Runs a command with the injected library that records its GPU work. Returns the command's exit code: 128 + the
/// signal's number if a signal ended it, 2 if it cannot start. A signal to this program goes on to the command and its
/// descendants; after five seconds, SIGKILL follows. The keyboard's signals reach the command directly, and it handles
/// them itself. `replace`: replace an existing recording, once the command has ended and a new recording exists.
/// Reports a missing recording on standard error.
int run_attached(const std::vector<std::string>& command, live::LiveOptions options, bool replace,
                 Interrupt& interrupt);

}  // namespace nanscope::cli
