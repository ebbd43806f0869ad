#pragma once

namespace nanscope::cli {

/// A write that cannot be done fails with a reason instead of a signal (SIGPIPE, SIGXFSZ), and no file that is opened
/// later gets the number of a standard stream that is closed. The first call of the program.
void prepare_streams();

/// Writes what is left of the answer. The exit code: `code`; 2 and a line when the answer could not be written, 141
/// and none when its reader is gone, as the shell has it of a program that SIGPIPE ended.
int close_output(int code);

}  // namespace nanscope::cli
