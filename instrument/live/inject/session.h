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
#include <vector>

#include "instrument/cupti/activity_trace.h"
#include "instrument/cupti/api.h"
#include "instrument/cupti/joiner.h"
#include "instrument/cupti/subscriber.h"
#include "instrument/live/call_log.h"
#include "instrument/live/inject/cuda_live_driver.h"
#include "instrument/live/live_options.h"
#include "instrument/live/timeline_writer.h"
#include "instrument/live/watcher.h"

namespace nanscope::live {

/// What the injected library does in a process, from the driver's start to the process's end. Callbacks come from any
/// thread of the program: they note the launch, and look at it where the watch wants to. A thread of ours writes.
/// CUPTI is never called with a lock held, as it may call back.
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
      : options_(options), api_(std::move(api)), calls_(&cupti::demangled) {}
  Status listen();
  void watch(const char* scan_ptx);

  /// A launch between its beginning and its end.
  struct Pending {
    Launch launch;
    Watcher::Before before;
  };
  /// What cuLaunchKernel and its kin have in common.
  struct LaunchCall {
    Call call;
    CUfunction function = nullptr;
    void** parameters = nullptr;
    void** extra = nullptr;
  };
  static std::optional<LaunchCall> launch_call(CUpti_CallbackId id, const void* params);

  void driver_call(CUpti_CallbackId id, const CUpti_CallbackData& call);
  void launch_begins(LaunchCall& launch, const CUpti_CallbackData& call);
  void watch_launch(const LaunchCall& launch, const KernelName& name, const CUpti_CallbackData& call);
  void launch_ends(const CUpti_CallbackData& call);
  void graph_begins(CUstream stream, const CUpti_CallbackData& call);
  void memory_call(CUpti_CallbackId id, const CUpti_CallbackData& call);
  void report(const Finding& finding);
  void write_calls();
  void write_all();
  void write_what_was_said();
  void tell_of_the_watch();
  void tell_what_was_lost();
  void tick();
  void write_until_stopped();

  LiveOptions options_;
  std::shared_ptr<const cupti::Api> api_;
  std::optional<cupti::Subscriber> subscriber_;
  std::unique_ptr<cupti::ActivityTrace> activity_;  ///< null: the order is known, but no times
  std::atomic<bool> active_ = true;

  CallLog calls_;

  // Of the thread that writes, and after it of finish().
  std::unique_ptr<TimelineWriter> timeline_;
  cupti::Joiner joiner_;
  std::vector<Call> taken_;
  std::size_t written_of_said_ = 0;

  std::timed_mutex watch_mutex_;  ///< held while a launch is looked at, which waits for the GPU
  std::unique_ptr<CudaLiveDriver> driver_;
  std::optional<Watcher> watcher_;
  std::int64_t launches_ = 0;

  std::mutex said_mutex_;
  std::string said_;

  std::mutex stop_mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread ticker_;
};

}  // namespace nanscope::live
