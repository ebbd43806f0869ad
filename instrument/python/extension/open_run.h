#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "instrument/python/extension/failure.h"
#include "instrument/python/extension/interruptible.h"
#include "scenarios/open_run.h"

namespace nanscope::python {

/// A recording or a dump that Python has open. Any thread may ask; one is answered at a time. An interrupt ends the
/// run: its reads have been told to stop.
class Run {
 public:
  Run(std::unique_ptr<scenarios::OpenRun> run, std::stop_source stop) : run_(std::move(run)), stop_(std::move(stop)) {}

  void close() {
    const pybind11::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    run_.reset();
  }
  bool closed() {
    const pybind11::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return run_ == nullptr;
  }

  /// What is known without looking at elements. To be called with the interpreter's lock, as ask_long().
  template <class Work>
  auto ask(const Work& work) {
    const pybind11::gil_scoped_release released;
    return answer(work);
  }
  /// What may take as long as a replay.
  template <class Work>
  auto ask_long(const Work& work) {
    return run_interruptibly(stop_, [&] { return answer(work); });
  }
  std::stop_token stop_token() const { return stop_.get_token(); }

 private:
  template <class Work>
  auto answer(const Work& work) {
    const std::lock_guard lock(mutex_);
    if (!run_) throw Failure("the run is closed");
    if (stop_.stop_requested()) throw Failure(run_->target() + ": was interrupted: open it again");
    auto made = work(*run_);
    throw_if(run_->view().status());
    return made;
  }

  std::mutex mutex_;
  std::unique_ptr<scenarios::OpenRun> run_;
  std::stop_source stop_;
};

}  // namespace nanscope::python
