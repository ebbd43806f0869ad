#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "cli/command.h"
#include "core/system_reason.h"

namespace nanscope::cli {

void prepare_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // open() returns the lowest free number. The access mode is the wrong one on purpose: use of the stream must fail.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

int close_output(int code) {
  const int earlier = output_error();
  errno = 0;
  const bool lost = std::ferror(stdout) != 0;
  const bool closed = std::fclose(stdout) == 0;
  if (earlier == 0 && !lost && closed) return code;
  const int reason = earlier != 0 ? earlier : errno;
  if (reason == EPIPE) return kReaderGone;
  return complain("standard output cannot be written: " + (reason == 0 ? "a device error" : system_reason(reason)));
}

}  // namespace nanscope::cli
