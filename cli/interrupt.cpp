#include "cli/interrupt.h"

#include <unistd.h>

#include <ctime>

#include "cli/command.h"

namespace nanscope::cli {

namespace {

sigset_t watched() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

void watch(const std::stop_token& end, std::stop_source& source) {
  const sigset_t signals = watched();
  const timespec patience{0, 50'000'000};
  while (!end.stop_requested()) {
    if (sigtimedwait(&signals, nullptr, &patience) < 0) continue;
    if (source.stop_requested()) _exit(kInterrupted);
    source.request_stop();
  }
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t signals = watched();
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
  watcher_ = std::jthread([this](const std::stop_token& end) { watch(end, source_); });
}

Interrupt::~Interrupt() {
  watcher_.request_stop();
  watcher_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace nanscope::cli
