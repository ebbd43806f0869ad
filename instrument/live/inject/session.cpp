#include "instrument/live/inject/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "instrument/live/watch_dump.h"

namespace nanscope::live {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kPatience = std::chrono::seconds(2);

/// Our own calls of the driver call back too.
thread_local bool inside = false;
/// The runtime's call in which the driver's lies: records of work carry the one or the other's id.
thread_local std::uint32_t runtime_correlation = 0;

class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

void tell(std::string_view text) { fmt::print(stderr, "nanscope: {}\n", text); }

/// As /proc has it, arguments parted by blanks.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) c = c == '\0' ? ' ' : c;
  return text.substr(0, 4096);
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

std::string launch_attributes(std::array<unsigned, 3> grid, std::array<unsigned, 3> block, unsigned shared,
                              CUstream stream) {
  return fmt::format(R"("grid":[{},{},{}],"block":[{},{},{}],"shared":{},"stream":"{}")", grid[0], grid[1], grid[2],
                     block[0], block[1], block[2], shared, fmt::ptr(stream));
}

}  // namespace

Result<std::unique_ptr<Session>> Session::start(const LiveOptions& options, const char* scan_ptx) {
  auto api = cupti::Api::load();
  if (!api) return tl::unexpected(api.error());
  std::unique_ptr<Session> session(new Session(options, *api));
  auto subscriber = cupti::Subscriber::claim(*api, &Session::on_call, session.get());
  if (!subscriber) return tl::unexpected(subscriber.error());
  session->subscriber_.emplace(std::move(*subscriber));
  auto timeline = TimelineWriter::create(options.output, command_line(), getpid(), NANSCOPE_VERSION);
  if (!timeline) return tl::unexpected(timeline.error());
  session->timeline_ = std::move(*timeline);
  if (auto activity = cupti::ActivityTrace::start(*api)) {
    session->activity_ = std::move(*activity);
  } else {
    tell(fmt::format("{}; kernels are listed without their times", activity.error().message));
  }
  if (options.watch) session->watch(scan_ptx);
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
  for (const auto id : kRuntimeLaunches) {
    if (Status on = subscriber_->listen(CUPTI_CB_DOMAIN_RUNTIME_API, id); !on) return on;
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
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernel_params*>(params);
      return LaunchCall{p.f, p.hStream, p.kernelParams, p.extra,
                        launch_attributes({p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
                                          p.sharedMemBytes, p.hStream)};
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernelEx_params*>(params);
      if (p.config == nullptr) return std::nullopt;
      const CUlaunchConfig& c = *p.config;
      return LaunchCall{p.f, c.hStream, p.kernelParams, p.extra,
                        launch_attributes({c.gridDimX, c.gridDimY, c.gridDimZ}, {c.blockDimX, c.blockDimY, c.blockDimZ},
                                          c.sharedMemBytes, c.hStream)};
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchCooperativeKernel_params*>(params);
      return LaunchCall{p.f, p.hStream, p.kernelParams, nullptr,
                        launch_attributes({p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
                                          p.sharedMemBytes, p.hStream)};
    }
    default:
      return std::nullopt;
  }
}

void Session::driver_call(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  const std::lock_guard lock(mutex_);
  if (const auto launch = launch_call(id, call.functionParams)) {
    if (call.callbackSite == CUPTI_API_ENTER) {
      launch_begins(*launch, call);
    } else {
      launch_ends(call);
    }
    return;
  }
  if (id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch || id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz) {
    const auto& p = *static_cast<const cuGraphLaunch_params*>(call.functionParams);
    if (call.callbackSite == CUPTI_API_ENTER) graph_begins(p.hStream, call);
    return;
  }
  memory_call(id, call);
}

std::int64_t Session::add_op(const std::string& name, std::string attributes, const CUpti_CallbackData& call) {
  const std::int64_t op = timeline_->add_op(name, name, std::move(attributes));
  joiner_.know(call.correlationId, op);
  if (runtime_correlation != 0) joiner_.know(runtime_correlation, op);
  return op;
}

void Session::graph_begins(CUstream stream, const CUpti_CallbackData& call) {
  add_op("graph", fmt::format(R"({{"stream":"{}"}})", fmt::ptr(stream)), call);
}

void Session::launch_begins(const LaunchCall& launch, const CUpti_CallbackData& call) {
  *call.correlationData = 0;
  Pending pending;
  pending.launch.name = cupti::demangled(call.symbolName);
  const std::string symbol =
      nlohmann::json(pending.launch.name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  add_op(short_name(pending.launch.name), fmt::format(R"({{"symbol":{},{}}})", symbol, launch.attributes), call);
  pending.launch.number = ++launches_;
  pending.launch.stream = reinterpret_cast<std::uint64_t>(launch.stream);
  if (!watcher_) return;
  pending.launch.parameters = [this, launch] {
    return driver_->parameters(launch.function, launch.parameters, launch.extra);
  };
  auto before = watcher_->before(pending.launch);
  if (!before) return;
  pending.before = std::move(*before);
  *call.correlationData = reinterpret_cast<std::uint64_t>(new Pending(std::move(pending)));
}

void Session::launch_ends(const CUpti_CallbackData& call) {
  // CUPTI carries a number from a call's begin to its end. NOLINTNEXTLINE(performance-no-int-to-ptr)
  const std::unique_ptr<Pending> pending(reinterpret_cast<Pending*>(*call.correlationData));
  *call.correlationData = 0;
  if (!pending || !watcher_) return;
  const auto* result = static_cast<const CUresult*>(call.functionReturnValue);
  if (result == nullptr || *result != CUDA_SUCCESS) return;
  if (const auto finding = watcher_->after(pending->launch, pending->before)) report(*finding);
}

void Session::memory_call(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  if (!watcher_) return;
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
  said_ += text + '\n';
  timeline_->say(said_);
  std::filesystem::path folder = timeline_->path();
  folder.replace_extension(finding.kind == FindingKind::born ? ".born" : ".carried");
  const auto written = write_watch_dump(finding, folder);
  tell(written ? fmt::format("{} tensors in {}; nanscope diagnose {}", *written, folder.string(), folder.string())
               : written.error().message);
}

void Session::write_activity(bool all) {
  if (!activity_) return;
  cupti::Decoded decoded = activity_->take();
  const std::lock_guard lock(mutex_);
  for (KernelRow& row : joiner_.join(std::move(decoded))) timeline_->add(std::move(row));
  // A launch is known before its work begins: what belongs to none now, a copy or a fill, never will.
  for (KernelRow& row : joiner_.rest()) timeline_->add(std::move(row));
  if (!all) return;
  if (const std::int64_t lost = activity_->dropped(); lost > 0) {
    timeline_->add(
        KernelRow{0, "records that were dropped", 0, 0, fmt::format(R"({{"kind":"dropped","records":{}}})", lost)});
  }
}

void Session::tick() {
  const Inside guard;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, kTick, [this] { return stop_; });
    lock.unlock();
    // Only what CUPTI has ready: forcing it would wait for the GPU.
    if (activity_ && active_) (void)activity_->flush(false);
    write_activity(false);
    lock.lock();
    (void)timeline_->commit();  // an error is told at the end
  }
}

void Session::finish() {
  if (!active_.exchange(false)) return;
  const Inside guard;
  if (!mutex_.try_lock_for(kPatience)) {
    ticker_.detach();
    return tell("the GPU does not answer: the recording ends here");
  }
  stop_ = true;
  mutex_.unlock();
  wake_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  if (activity_) (void)activity_->flush(true);
  write_activity(true);
  const std::lock_guard lock(mutex_);
  if (watcher_) {
    const WatchCounts c = watcher_->counts();
    said_ += fmt::format(
        "watched {} of {} launches that match, {} in all: {} over budget, {} captured into graphs, {} without a "
        "tracked argument, {} refused; {} arguments cut, {} launches with NaN or +Inf in some formats only; "
        "{:.2f} % of the time",
        c.scanned, c.selected, c.launches, c.over_budget, c.captured, c.blind, c.failed, c.cut, c.possible,
        100 * watcher_->share_spent());
    timeline_->say(said_);
    tell(said_.substr(said_.rfind("watched ")));
  }
  const Status finished = timeline_->finish();
  tell(finished ? fmt::format("{} launches in {}", timeline_->ops(), timeline_->path().string())
                : finished.error().message);
}

}  // namespace nanscope::live
