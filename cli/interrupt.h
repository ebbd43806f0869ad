#pragma once
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <stop_token>
#include <thread>

namespace nanscope::cli {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP asks for a clean stop. Where that does not come within half a
/// second, or a second signal comes, the program ends at once: what was being written under a name of ours is removed,
/// a recording under its own name stays as an interrupted one. Make it before other threads are started: they inherit
/// the blocked signals.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool requested() const { return source_.stop_requested(); }
  /// The exit code of a command that was stopped: 128 and the signal's number.
  int code() const { return 128 + signal_; }

  /// From now on a clean stop may take as long as it does: a second signal ends the program at once, time does not.
  void be_patient() { patient_ = true; }

  /// From now on signals wait for someone who takes them: sigtimedwait() on signals(). None ends the program.
  void hand_over();
  /// One that was taken: the command counts as stopped.
  void take(int signal);
  static sigset_t signals();
  /// Those that were blocked before: for a program that is started.
  const sigset_t& before() const { return before_; }

  /// Ends the watch: the exit code, which is code() where a signal came.
  int finish(int code);

 private:
  void watch();

  std::stop_source source_;
  std::atomic<int> signal_ = 0;
  std::atomic<bool> patient_ = false;
  sigset_t before_{};
  std::thread watcher_;  ///< none where no thread could be started: the signals then end the program as ever
};

}  // namespace nanscope::cli
