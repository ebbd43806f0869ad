#pragma once

namespace nanscope::cli {

/// Makes failed writes return an error instead of raising SIGPIPE or SIGXFSZ. Occupies the numbers of closed standard
/// streams, so that no later file gets them. Call it first.
void prepare_streams();

/// Flushes and closes standard output. Returns the exit code: `code`; 2 with an error line if a write failed; 141
/// without a line if the reader closed the pipe, as for a program that SIGPIPE ended.
int close_output(int code);

}  // namespace nanscope::cli
