#pragma once
#include <signal.h>

#include <stop_token>
#include <thread>

namespace nanscope::cli {

/// While it lives, the first Ctrl-C (or SIGTERM) asks for a clean stop, and the second ends the
/// program. Make it before other threads are started: they inherit the blocked signals.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool requested() const { return source_.stop_requested(); }

 private:
  std::stop_source source_;
  sigset_t before_{};
  std::jthread watcher_;
};

}  // namespace nanscope::cli
