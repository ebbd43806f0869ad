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
  // The lowest number is given first. Opened the wrong way round: it must not look as if it could be used.
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
  return complain("standard output cannot be written: " +
                  (reason == 0 ? "an error of the device" : system_reason(reason)));
}

}  // namespace nanscope::cli
