#pragma once
#include <cupti.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "instrument/cupti/activity_trace.h"
#include "instrument/cupti/api.h"
#include "instrument/cupti/joiner.h"
#include "instrument/cupti/subscriber.h"
#include "instrument/live/inject/cuda_live_driver.h"
#include "instrument/live/live_options.h"
#include "instrument/live/timeline_writer.h"
#include "instrument/live/watcher.h"

namespace nanscope::live {

/// What the injected library does in a process, from the driver's start to the process's end. Callbacks come from any
/// thread of the program; CUPTI is never called with the lock held, as it may call back.
class Session {
 public:
  /// Errors: CUPTI or the recording cannot be had. The program goes on without us.
  static Result<std::unique_ptr<Session>> start(const LiveOptions& options, const char* scan_ptx);

  /// At the process's end: what is known is written, the recording is complete. Where a look at a kernel never came
  /// back, because the GPU hangs, the recording ends with what it holds: the process must be able to exit.
  void finish();
  /// In a child that was forked: nothing is ours any more.
  void abandon() { active_ = false; }

  static void CUPTIAPI on_call(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

 private:
  Session(const LiveOptions& options, std::shared_ptr<const cupti::Api> api)
      : options_(options), api_(std::move(api)) {}
  Status listen();
  void watch(const char* scan_ptx);

  /// A launch between its beginning and its end.
  struct Pending {
    Launch launch;
    Watcher::Before before;
  };
  /// What cuLaunchKernel and its kin have in common.
  struct LaunchCall {
    CUfunction function = nullptr;
    CUstream stream = nullptr;
    void** parameters = nullptr;
    void** extra = nullptr;
    std::string attributes;
  };
  static std::optional<LaunchCall> launch_call(CUpti_CallbackId id, const void* params);

  void driver_call(CUpti_CallbackId id, const CUpti_CallbackData& call);
  void launch_begins(const LaunchCall& launch, const CUpti_CallbackData& call);
  void launch_ends(const CUpti_CallbackData& call);
  void graph_begins(CUstream stream, const CUpti_CallbackData& call);
  void memory_call(CUpti_CallbackId id, const CUpti_CallbackData& call);
  std::int64_t add_op(const std::string& name, std::string attributes, const CUpti_CallbackData& call);
  void report(const Finding& finding);
  void write_activity(bool all);
  void tick();

  LiveOptions options_;
  std::shared_ptr<const cupti::Api> api_;
  std::optional<cupti::Subscriber> subscriber_;
  std::unique_ptr<cupti::ActivityTrace> activity_;  ///< null: the order is known, but no times
  std::atomic<bool> active_ = true;

  std::timed_mutex mutex_;
  std::unique_ptr<TimelineWriter> timeline_;
  cupti::Joiner joiner_;
  std::unique_ptr<CudaLiveDriver> driver_;
  std::optional<Watcher> watcher_;
  std::int64_t launches_ = 0;
  std::string said_;

  std::condition_variable_any wake_;
  bool stop_ = false;
  std::thread ticker_;
};

}  // namespace nanscope::live
