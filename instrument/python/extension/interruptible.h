#pragma once
#include <pybind11/pybind11.h>

#include <chrono>
#include <future>
#include <stop_token>

namespace nanscope::python {

/// How long a KeyboardInterrupt may wait.
inline constexpr std::chrono::milliseconds kBetweenSignals{50};

/// Does `work` on a thread of its own, without the interpreter's lock, and answers signals meanwhile: one that raises,
/// as Ctrl+C does in the main thread, asks `stop`, waits for `work` to end, and is raised. To be called with the lock.
template <class Work>
auto run_interruptibly(const std::stop_source& stop, const Work& work) {
  auto answer = std::async(std::launch::async, work);
  const pybind11::gil_scoped_release released;
  while (answer.wait_for(kBetweenSignals) != std::future_status::ready) {
    const pybind11::gil_scoped_acquire held;
    if (PyErr_CheckSignals() == 0) continue;
    pybind11::error_already_set interrupt;
    stop.request_stop();
    {
      const pybind11::gil_scoped_release waiting;
      answer.wait();
    }
    throw interrupt;
  }
  return answer.get();
}

}  // namespace nanscope::python
