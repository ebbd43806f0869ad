#pragma once
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <stop_token>
#include <thread>

namespace nanscope::cli {

/// During its lifetime, the first SIGINT, SIGTERM or SIGHUP requests a clean stop. If the work does not stop within 0.6
/// seconds, or a second signal arrives, the program ends at once: it removes its temporary files, and a recording under
/// its own name stays as an interrupted recording. Create it before other threads start: they inherit the blocked
/// signals.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool requested() const { return source_.stop_requested(); }
  /// The exit code of an interrupted command: 128 + the signal's number.
  int code() const { return 128 + signal_; }

  /// Removes the time limit of a clean stop. A second signal still ends the program at once.
  void be_patient() { patient_ = true; }

  /// Ends the watch. The caller then receives signals with sigtimedwait() on signals(); they no longer end the program.
  void hand_over();
  /// Reports a signal that the caller received: requests a stop and sets code().
  void take(int signal);
  static sigset_t signals();
  /// The signal mask from before this object, for a child process.
  const sigset_t& before() const { return before_; }

  /// Ends the watch. Returns code() if a signal arrived, else `code`.
  int finish(int code);

 private:
  void watch();

  std::stop_source source_;
  std::atomic<int> signal_ = 0;
  std::atomic<bool> patient_ = false;
  sigset_t before_{};
  std::thread watcher_;  ///< not running if no thread could start: signals then end the program as usual
};

}  // namespace nanscope::cli
