#pragma once

namespace nanscope::cli {

/// Makes the system map the stack that commands use on the main thread, so that a limit of memory (ulimit -v) ends a
/// command with a message: a stack that cannot grow ends it by SIGSEGV. Does nothing where there is no memory for it,
/// or a smaller limit of the stack (ulimit -s).
void reserve_stack();

}  // namespace nanscope::cli
