#include "instrument/live/inject/cuda_live_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace nanscope::live {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kWordsPerThread = 16;
constexpr std::uint64_t kMostBlocks = 4096;
constexpr std::uint64_t kBeginningBytes = kBeginningWords * sizeof(std::uint32_t);

/// The watcher keeps CUDA's handles as numbers, so that it needs no header of CUDA's.
CUstream stream_of(std::uint64_t handle) {
  return reinterpret_cast<CUstream>(handle);  // NOLINT(performance-no-int-to-ptr)
}

/// While another thread captures a graph in global mode, allocating, loading or waiting anywhere spoils its graph,
/// unless the thread that does it says that it has nothing to do with it.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const CudaApi& api) : api_(api) { api_.exchange_capture_mode(&mode_); }
  ~OutsideCaptures() { api_.exchange_capture_mode(&mode_); }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;

 private:
  const CudaApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // after an exchange, what it was
};

/// The buffer of packed parameters in cuLaunchKernel's `extra`.
std::span<const std::byte> packed(void** extra) {
  const void* data = nullptr;
  std::size_t bytes = 0;
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) data = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const std::size_t*>(extra[1]);
  }
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : bytes};
}

}  // namespace

std::int64_t CudaLiveDriver::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool CudaLiveDriver::capturing(std::uint64_t stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // A driver that refuses to answer (the legacy stream during another's capture) must not be launched on either.
  return api_.is_capturing(stream_of(stream), &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<CudaLiveDriver::Loaded> CudaLiveDriver::loaded() {
  CUcontext context = nullptr;
  if (Status got = checked(api_, api_.current_context(&context), "asking for the context"); !got) {
    return tl::unexpected(got.error());
  }
  if (const auto known = contexts_.find(context); known != contexts_.end()) return known->second;
  const auto load = [this]() -> Result<Loaded> {
    Loaded made;
    CUmodule module = nullptr;
    Status done = checked(api_, api_.load_module(&module, ptx_), "loading the scan");
    if (done)
      done = checked(api_, api_.get_function(&made.function, module, "nanscope_format_scan"), "finding the scan");
    if (done) done = checked(api_, api_.allocate(&made.scans, kMostExtents * sizeof(Scan)), "allocating");
    if (done) done = checked(api_, api_.allocate(&made.beginnings, kMostExtents * kBeginningBytes), "allocating");
    if (!done) return tl::unexpected(done.error());
    return made;
  };
  return contexts_.emplace(context, load()).first->second;
}

Status CudaLiveDriver::scan(std::uint64_t stream, std::span<const Extent> extents, bool again, std::span<Scan> scans) {
  if (extents.size() > kMostExtents || scans.size() != extents.size()) return fail("cuda: too many extents");
  const OutsideCaptures outside(api_);
  const Result<Loaded> ours = loaded();
  if (!ours) return tl::unexpected(ours.error());
  if (Status cleared = checked(api_, api_.fill(ours->scans, 0, scans.size_bytes(), stream_of(stream)), "clearing");
      !cleared) {
    return cleared;
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    ScanJob job;
    job.range = {extents[i].address, extents[i].bytes};
    // Addresses of the device, which the host only passes on. NOLINTBEGIN(performance-no-int-to-ptr)
    job.scan = reinterpret_cast<Scan*>(ours->scans + i * sizeof(Scan));
    job.beginning = reinterpret_cast<std::uint32_t*>(ours->beginnings + i * kBeginningBytes);
    // NOLINTEND(performance-no-int-to-ptr)
    job.again = again ? 1 : 0;
    void* argument = &job;
    const std::uint64_t wanted = (job.range.words() + kThreads * kWordsPerThread - 1) / (kThreads * kWordsPerThread);
    const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, kMostBlocks));
    if (Status launched = checked(
            api_, api_.launch(ours->function, blocks, 1, 1, kThreads, 1, 1, 0, stream_of(stream), &argument, nullptr),
            "launching the scan");
        !launched) {
      return launched;
    }
  }
  return copy(stream, ours->scans, std::as_writable_bytes(scans));
}

Status CudaLiveDriver::copy(std::uint64_t stream, std::uint64_t address, std::span<std::byte> to) {
  const OutsideCaptures outside(api_);
  if (Status copied =
          checked(api_, api_.copy_to_host(to.data(), address, to.size(), stream_of(stream)), "copying to the host");
      !copied) {
    return copied;
  }
  return checked(api_, api_.wait(stream_of(stream)), "waiting for the stream");
}

std::vector<Parameter> CudaLiveDriver::parameters(CUfunction function, void** parameters, void** extra) const {
  std::vector<Parameter> found;
  const std::span<const std::byte> buffer = parameters == nullptr ? packed(extra) : std::span<const std::byte>();
  constexpr std::size_t kMostParameters = 1024;
  for (std::size_t i = 0; i < kMostParameters; ++i) {
    std::size_t offset = 0;
    std::size_t size = 0;
    // Since CUDA 12 a launch takes a CUkernel in the place of a CUfunction.
    if (api_.function_parameter(function, i, &offset, &size) != CUDA_SUCCESS &&
        api_.kernel_parameter(reinterpret_cast<CUkernel>(function), i, &offset, &size) != CUDA_SUCCESS) {
      break;
    }
    if (parameters != nullptr && parameters[i] != nullptr) {
      found.push_back({static_cast<int>(i), {static_cast<const std::byte*>(parameters[i]), size}});
    } else if (offset <= buffer.size() && size <= buffer.size() - offset) {
      found.push_back({static_cast<int>(i), buffer.subspan(offset, size)});
    }
  }
  return found;
}

}  // namespace nanscope::live
