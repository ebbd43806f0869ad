#include "instrument/live/inject/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/system_reason.h"
#include "core/text/safe_text.h"
#include "instrument/live/command_line.h"
#include "instrument/live/watch_dump.h"

namespace nanscope::live {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kPatience = std::chrono::seconds(2);

/// Our own calls of the driver call back too.
thread_local bool inside = false;
/// The runtime's call in which the driver's lies: records of work carry the one or the other's id.
thread_local std::uint32_t runtime_correlation = 0;
/// Launches of this thread since one was timed.
thread_local std::int64_t since_timed = 0;

class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

void tell(std::string_view text) { fmt::print(stderr, "nanscope: {}\n", error_line(text)); }

/// As /proc has it, without secrets: the recording may be given to others.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string one; std::getline(file, one, '\0');) arguments.push_back(std::move(one));
  return masked_command(arguments).substr(0, 4096);
}

constexpr std::array kLaunches = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
                                  CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
                                  CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz};
constexpr std::array kMemory = {CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2,
                                CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2,
                                CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged,
                                CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync,
                                CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz,
                                CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
                                CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz,
                                CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2,
                                CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync,
                                CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz,
                                CUPTI_DRIVER_TRACE_CBID_cuMemSetAccess,
                                CUPTI_DRIVER_TRACE_CBID_cuMemUnmap};
constexpr std::array kRuntimeLaunches = {
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,     CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
    CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000,  CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,     CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000};

/// Of how many launches one is timed: what noting a launch takes is spent of the budget too.
constexpr std::int64_t kTimedOf = 64;
/// And what cannot be timed from inside, of each: CUPTI's way to us and back, at the launch's begin and at its end.
constexpr std::int64_t kUntimedNs = 100;

}  // namespace

Result<std::unique_ptr<Session>> Session::start(const LiveOptions& options, const char* scan_ptx) {
  auto api = cupti::Api::load();
  if (!api) return tl::unexpected(api.error());
  std::unique_ptr<Session> session(new Session(options, *api));
  auto subscriber = cupti::Subscriber::claim(*api, &Session::on_call, session.get());
  if (!subscriber) return tl::unexpected(subscriber.error());
  session->subscriber_.emplace(std::move(*subscriber));
  auto timeline = TimelineWriter::create(options.output, options.beside, command_line(), getpid(), NANSCOPE_VERSION);
  if (!timeline) return tl::unexpected(timeline.error());
  session->timeline_ = std::move(*timeline);
  if (options.watch) {
    // No times: what tracing takes of every launch cannot be kept within a budget.
    session->watch(scan_ptx);
  } else if (auto activity = cupti::ActivityTrace::start(*api)) {
    session->activity_ = std::move(*activity);
  } else {
    tell(fmt::format("{}; kernels are listed without their times", activity.error().message));
  }
  if (Status listening = session->listen(); !listening) return tl::unexpected(listening.error());
  session->ticker_ = std::thread([raw = session.get()] { raw->tick(); });
  return session;
}

void Session::watch(const char* scan_ptx) {
  if (scan_ptx == nullptr) return tell("nothing is watched: this build has no scan (nvcc was not found)");
  auto cuda = CudaApi::loaded();
  if (!cuda) return tell(fmt::format("nothing is watched: {}", cuda.error().message));
  auto watching = watch_options(options_);
  if (!watching) return tell(fmt::format("nothing is watched: {}", watching.error().message));
  driver_ = std::make_unique<CudaLiveDriver>(*cuda, scan_ptx);
  watcher_.emplace(*driver_, std::move(*watching));
}

Status Session::listen() {
  for (const auto id : kLaunches) {
    if (Status on = subscriber_->listen(CUPTI_CB_DOMAIN_DRIVER_API, id); !on) return on;
  }
  // Only records of work name the runtime's calls.
  if (activity_) {
    for (const auto id : kRuntimeLaunches) {
      if (Status on = subscriber_->listen(CUPTI_CB_DOMAIN_RUNTIME_API, id); !on) return on;
    }
  }
  if (!watcher_) return {};
  for (const auto id : kMemory) {
    if (Status on = subscriber_->listen(CUPTI_CB_DOMAIN_DRIVER_API, id); !on) return on;
  }
  return {};
}

void Session::on_call(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  auto* session = static_cast<Session*>(user);
  if (inside || !session->active_ || data == nullptr) return;
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  // Nothing of ours may reach the program, not even a lack of memory.
  try {
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
      runtime_correlation = call.callbackSite == CUPTI_API_ENTER ? call.correlationId : 0;
    } else if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
      const Inside guard;
      session->driver_call(id, call);
    }
  } catch (const std::exception&) {
    session->active_ = false;
  }
}

std::optional<Session::LaunchCall> Session::launch_call(CUpti_CallbackId id, const void* params) {
  const auto made = [](std::array<unsigned, 3> grid, std::array<unsigned, 3> block, unsigned shared, CUstream stream,
                       CUfunction function, void** parameters, void** extra) {
    LaunchCall launch;
    launch.call.grid = grid;
    launch.call.block = block;
    launch.call.shared = shared;
    launch.call.stream = reinterpret_cast<std::uint64_t>(stream);
    launch.function = function;
    launch.parameters = parameters;
    launch.extra = extra;
    return launch;
  };
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernel_params*>(params);
      return made({p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes,
                  p.hStream, p.f, p.kernelParams, p.extra);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernelEx_params*>(params);
      if (p.config == nullptr) return std::nullopt;
      const CUlaunchConfig& c = *p.config;
      return made({c.gridDimX, c.gridDimY, c.gridDimZ}, {c.blockDimX, c.blockDimY, c.blockDimZ}, c.sharedMemBytes,
                  c.hStream, p.f, p.kernelParams, p.extra);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchCooperativeKernel_params*>(params);
      return made({p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes,
                  p.hStream, p.f, p.kernelParams, nullptr);
    }
    default:
      return std::nullopt;
  }
}

void Session::driver_call(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  const bool begins = call.callbackSite == CUPTI_API_ENTER;
  if (id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch || id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz) {
    if (begins) graph_begins(static_cast<const cuGraphLaunch_params*>(call.functionParams)->hStream, call);
    return;
  }
  if (std::find(kMemory.begin(), kMemory.end(), id) != kMemory.end()) return memory_call(id, call);
  if (!begins) return launch_ends(call);
  *call.correlationData = 0;  // what launch_ends() finds, also when this is no launch after all
  if (auto launch = launch_call(id, call.functionParams)) launch_begins(*launch, call);
}

void Session::graph_begins(CUstream stream, const CUpti_CallbackData& call) {
  Call graph;
  graph.stream = reinterpret_cast<std::uint64_t>(stream);
  graph.correlation = call.correlationId;
  graph.runtime_correlation = runtime_correlation;
  calls_.add_graph(graph);
}

void Session::launch_begins(LaunchCall& launch, const CUpti_CallbackData& call) {
  const bool timed = watcher_ && ++since_timed == kTimedOf;
  if (timed) since_timed = 0;
  const std::int64_t start = timed ? driver_->now_ns() : 0;
  launch.call.correlation = call.correlationId;
  launch.call.runtime_correlation = runtime_correlation;
  const KernelName& name = calls_.add_kernel(call.symbolName, launch.call);
  if (!watcher_) return;
  const std::lock_guard lock(watch_mutex_);
  watch_launch(launch, name, call);
  if (timed && *call.correlationData == 0) watcher_->charge(kTimedOf * (driver_->now_ns() - start + kUntimedNs));
}

void Session::watch_launch(const LaunchCall& launch, const KernelName& name, const CUpti_CallbackData& call) {
  Launch seen;
  seen.number = ++launches_;
  seen.name = name.demangled;
  seen.stream = launch.call.stream;
  seen.parameters = [this, &launch] { return driver_->parameters(launch.function, launch.parameters, launch.extra); };
  auto before = watcher_->before(seen);
  if (!before) return;
  seen.parameters = nullptr;
  *call.correlationData =
      reinterpret_cast<std::uint64_t>(new Pending{std::move(seen), std::move(*before)});  // launch_ends() owns it
}

void Session::launch_ends(const CUpti_CallbackData& call) {
  if (*call.correlationData == 0) return;
  // CUPTI carries a number from a call's begin to its end. NOLINTNEXTLINE(performance-no-int-to-ptr)
  const std::unique_ptr<Pending> pending(reinterpret_cast<Pending*>(*call.correlationData));
  *call.correlationData = 0;
  const auto* result = static_cast<const CUresult*>(call.functionReturnValue);
  if (result == nullptr || *result != CUDA_SUCCESS) return;
  const std::lock_guard lock(watch_mutex_);
  if (const auto finding = watcher_->after(pending->launch, pending->before)) report(*finding);
}

void Session::memory_call(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  if (!watcher_) return;
  const std::lock_guard lock(watch_mutex_);
  AllocationMap& memory = watcher_->allocations();
  const bool begins = call.callbackSite == CUPTI_API_ENTER;
  const auto* result = static_cast<const CUresult*>(call.functionReturnValue);
  const bool made = !begins && result != nullptr && *result == CUDA_SUCCESS;
  const auto take = [&]<class Params>(const Params* p) {
    if (made && p->dptr != nullptr) memory.add({*p->dptr, p->bytesize});
  };
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2:
      return take(static_cast<const cuMemAlloc_v2_params*>(call.functionParams));
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged:
      return take(static_cast<const cuMemAllocManaged_params*>(call.functionParams));
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz:
      return take(static_cast<const cuMemAllocAsync_params*>(call.functionParams));
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz:
      return take(static_cast<const cuMemAllocFromPoolAsync_params*>(call.functionParams));
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2: {
      const auto* p = static_cast<const cuMemAllocPitch_v2_params*>(call.functionParams);
      if (made && p->dptr != nullptr && p->pPitch != nullptr) memory.add({*p->dptr, *p->pPitch * p->Height});
      return;
    }
    // Forgotten before it goes: nothing may be read of it afterwards.
    case CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2:
      if (begins) memory.remove(static_cast<const cuMemFree_v2_params*>(call.functionParams)->dptr);
      return;
    case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz:
      if (begins) memory.remove(static_cast<const cuMemFreeAsync_params*>(call.functionParams)->dptr);
      return;
    // What is mapped may be read from here on, and not before.
    case CUPTI_DRIVER_TRACE_CBID_cuMemSetAccess: {
      const auto* p = static_cast<const cuMemSetAccess_params*>(call.functionParams);
      const bool readable = p->count > 0 && p->desc != nullptr && p->desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
      if (made && readable) memory.add({p->ptr, p->size});
      return;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemUnmap: {
      const auto* p = static_cast<const cuMemUnmap_params*>(call.functionParams);
      if (begins) memory.remove_range({p->ptr, p->size});
      return;
    }
    default:
      return;
  }
}

void Session::report(const Finding& finding) {
  const std::string text = sentence(finding);
  tell(text);
  {
    const std::lock_guard lock(said_mutex_);
    said_ += text + '\n';
  }
  std::filesystem::path folder = timeline_->path();
  folder.replace_extension(finding.kind == FindingKind::born ? ".born" : ".carried");
  const auto written = write_watch_dump(finding, folder);
  if (!written) return tell(written.error().message);
  const std::string where = written->folder.string();
  tell(fmt::format("{} tensors in {}; nanscope diagnose {}", written->tensors, where, where));
}

void Session::write_calls() {
  calls_.take(taken_);
  for (const Call& call : taken_) {
    const std::string name = call.kernel == nullptr ? "graph" : call.kernel->short_name;
    const std::int64_t op = timeline_->add_op(name, name, attributes(call));
    if (!activity_) continue;
    joiner_.know(call.correlation, op);
    if (call.runtime_correlation != 0) joiner_.know(call.runtime_correlation, op);
  }
}

void Session::write_all() {
  // Taken in this order: a launch is noted before its work begins, so what then belongs to none, a copy or a fill,
  // never will.
  cupti::Decoded decoded;
  if (activity_) decoded = activity_->take();
  write_calls();
  for (KernelRow& row : joiner_.join(std::move(decoded))) timeline_->add(std::move(row));
  for (KernelRow& row : joiner_.rest()) timeline_->add(std::move(row));
  write_what_was_said();
}

void Session::write_what_was_said() {
  std::string text;
  {
    const std::lock_guard lock(said_mutex_);
    if (said_.size() == written_of_said_) return;
    text = said_;
  }
  written_of_said_ = text.size();
  timeline_->say(std::move(text));
}

void Session::tick() {
  const Inside guard;
  try {
    write_until_stopped();
  } catch (const std::exception& error) {  // it would end the program
    active_ = false;
    tell(fmt::format("the recording ends here: {}", reason_of(error)));
  }
}

void Session::write_until_stopped() {
  std::unique_lock lock(stop_mutex_);
  while (!stop_) {
    wake_.wait_for(lock, kTick, [this] { return stop_; });
    lock.unlock();
    // Only what CUPTI has ready: forcing it would wait for the GPU.
    if (activity_ && active_) (void)activity_->flush(false);
    write_all();
    (void)timeline_->commit();  // an error is told at the end
    lock.lock();
  }
}

void Session::finish() {
  if (!active_.exchange(false)) return;
  const Inside guard;
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  if (activity_) (void)activity_->flush(true);
  if (!watch_mutex_.try_lock_for(kPatience)) {
    write_all();
    (void)timeline_->commit();
    return tell("the GPU does not answer: the recording ends here");
  }
  const std::lock_guard lock(watch_mutex_, std::adopt_lock);
  if (watcher_) tell_of_the_watch();
  write_all();
  tell_what_was_lost();
  const Status finished = timeline_->finish();
  tell(finished ? fmt::format("{} launches in {}", timeline_->ops(), timeline_->path().string())
                : finished.error().message);
}

void Session::tell_of_the_watch() {
  const WatchCounts c = watcher_->counts();
  const std::string text = fmt::format(
      "watched {} of {} launches that match, {} in all: {} over budget, {} captured into graphs, {} without a "
      "tracked argument, {} refused; {} arguments cut, {} launches with NaN or +Inf in some formats only; "
      "{:.2f} % of the time",
      c.scanned, c.selected, c.launches, c.over_budget, c.captured, c.blind, c.failed, c.cut, c.possible,
      100 * watcher_->share_spent());
  tell(text);
  const std::lock_guard lock(said_mutex_);
  said_ += text;
}

void Session::tell_what_was_lost() {
  if (const std::int64_t lost = calls_.lost(); lost > 0) {
    tell(fmt::format("{} launches are not listed: they came faster than they could be written", lost));
  }
  if (const std::int64_t lost = activity_ ? activity_->dropped() : 0; lost > 0) {
    timeline_->add(
        KernelRow{0, "records that were dropped", 0, 0, fmt::format(R"({{"kind":"dropped","records":{}}})", lost)});
  }
}

}  // namespace nanscope::live
