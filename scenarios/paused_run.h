#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "core/result.h"
#include "core/run/tensor_source.h"
#include "instrument/engine/engine.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

/// A run that waits whenever a tensor is made that somebody asked for, and goes on when a later one is asked for. It
/// has a thread of its own, and never works while its owner does.
namespace nanscope::scenarios {

/// The elements of a tensor that a run made.
struct MadeTensor {
  TensorData data;
  std::uint64_t hash = 0;
};

class PausedRun {
 public:
  /// Keeps the tensors from the id `first` on; where they exceed `budget` bytes, the newest. Small ones are kept for
  /// longer: the ops of a layer read them again after they read its scores. The workbench must outlive it. `stop` ends
  /// the run. Exceptions: no thread can be started.
  PausedRun(Workbench& workbench, RunSpec spec, std::unique_ptr<Engine> engine, std::int64_t first, std::size_t budget,
            std::stop_token stop);
  ~PausedRun();
  PausedRun(const PausedRun&) = delete;
  PausedRun& operator=(const PausedRun&) = delete;

  /// Runs until the tensor was made, or to the end. Errors: those of the run; stopped. Exceptions of the run are passed
  /// on.
  Status reach(std::int64_t tensor);
  /// Null: it was not made yet, was made before `first`, or is no longer kept.
  const MadeTensor* find(std::int64_t tensor) const;
  /// Whether going on may still make it.
  bool may_make(std::int64_t tensor) const;

 private:
  class KeepProbe;

  void work();
  /// Waits for reach() to ask for more. False: the run shall end.
  bool wait();
  bool may_go_on(std::unique_lock<std::mutex> lock);

  Workbench& workbench_;
  RunSpec spec_;
  std::unique_ptr<Engine> engine_;
  std::stop_token stop_;
  std::unique_ptr<KeepProbe> probe_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool runs_ = false;       // guarded by mutex_: whose turn it is
  bool cancelled_ = false;  // guarded by mutex_
  std::int64_t wanted_ = -1;
  bool ended_ = false;
  std::optional<Error> error_;
  std::exception_ptr exception_;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace nanscope::scenarios
