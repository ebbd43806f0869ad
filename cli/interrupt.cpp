#include "cli/interrupt.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <string_view>
#include <system_error>

#include "core/files/temporary.h"

namespace nanscope::cli {

namespace {

using Clock = std::chrono::steady_clock;

/// Time for the work to stop cleanly. Including the cleanup, the program ends within a second.
constexpr auto kPatience = std::chrono::milliseconds(600);

/// Ends the watcher thread.
int wake_signal() { return SIGRTMIN; }

sigset_t with_wake(sigset_t signals) {
  sigaddset(&signals, wake_signal());
  return signals;
}

/// The signal that arrived within `time`; 0: none.
int wait_for(const sigset_t& signals, Clock::duration time) {
  using std::chrono::nanoseconds;
  const auto left = std::max<std::int64_t>(0, std::chrono::duration_cast<nanoseconds>(time).count());
  const timespec patience{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
  const int got = sigtimedwait(&signals, nullptr, &patience);
  return got > 0 ? got : 0;
}

/// Prints only if the write cannot block: a full pipe must not delay the exit.
void say_stopped() {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  if (poll(&error, 1, 0) != 1 || (error.revents & POLLOUT) == 0) return;
  const std::string_view line = isatty(STDERR_FILENO) == 1 ? "\r\x1b[Knanscope: stopped\n" : "nanscope: stopped\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

[[noreturn]] void end_at_once(int signal) {
  temporaries::remove_all();
  say_stopped();
  _exit(128 + signal);
}

}  // namespace

sigset_t Interrupt::signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // Under nohup, SIGHUP stays ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  return signals;
}

Interrupt::Interrupt() {
  const sigset_t blocked = with_wake(signals());
  pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

Interrupt::~Interrupt() { finish(0); }

void Interrupt::watch() {
  const sigset_t watched = with_wake(signals());
  for (;;) {
    int got = 0;
    sigwait(&watched, &got);
    if (got == wake_signal()) return;
    signal_ = got;
    source_.request_stop();
    int second = 0;
    if (patient_) {
      sigwait(&watched, &second);
    } else {
      second = wait_for(watched, kPatience);
    }
    if (second == wake_signal()) return;
    end_at_once(second != 0 ? second : got);
  }
}

void Interrupt::hand_over() {
  if (!watcher_.joinable()) return;
  pthread_kill(watcher_.native_handle(), wake_signal());
  watcher_.join();
}

void Interrupt::take(int signal) {
  signal_ = signal;
  source_.request_stop();
}

int Interrupt::finish(int code) {
  if (watcher_.joinable()) {
    hand_over();
    // A signal that is still pending would end the program when the mask is restored.
    if (const int late = wait_for(signals(), Clock::duration::zero()); late != 0) take(late);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  return requested() ? this->code() : code;
}

}  // namespace nanscope::cli
