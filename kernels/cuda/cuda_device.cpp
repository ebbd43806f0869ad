// The CUDA device: plain device memory, one stream for work and one for copies to the host that run beside it.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "kernels/cuda/launch_batch.h"
#include "kernels/cuda/pinned_pool.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/staging.h"
#include "kernels/device.h"
#include "kernels/op_table.h"

namespace nanscope::kernels {
namespace {

using cuda::checked;
using cuda::kFaultHint;

/// What memory of the device needs when it is freed, which may be after the device is gone. When the last memory was
/// freed nothing is left to run, as cudaFree() waits: streams and pinned memory go in peace.
struct Queue {
  Queue(int gpu, cuda::Stream work_stream, cuda::Stream copy_stream, cuda::Event launched_event, bool graphs)
      : ordinal(gpu),
        work(std::move(work_stream)),
        copies(std::move(copy_stream)),
        launched(std::move(launched_event)),
        batch(work.get(), graphs),
        staging(work.get()) {}

  int ordinal;
  cuda::Stream work;
  cuda::Stream copies;
  cuda::Event launched;
  cuda::LaunchBatch batch;
  cuda::Staging staging;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<Queue> queue, DeviceInfo info, bool graphs)
      : queue_(std::move(queue)), info_(std::move(info)), graphs_(graphs) {}

  const DeviceInfo& info() const override { return info_; }
  bool host_addressable() const override { return false; }

  Result<Buffer> allocate(std::size_t bytes, bool zeroed) override {
    if (Status set = select(); !set) return tl::unexpected(set.error());
    void* memory = nullptr;
    const std::size_t wanted = bytes == 0 ? 1 : bytes;
    if (Status got = checked(cudaMalloc(&memory, wanted), fmt::format("allocating {} bytes", bytes),
                             "free memory on the GPU or use a smaller model");
        !got) {
      cudaGetLastError();  // an allocation that failed does not fail the next launch
      return tl::unexpected(got.error());
    }
    // What was launched but not started may still use the memory; cudaFree itself waits for what was started.
    Buffer buffer(std::shared_ptr<void>(memory,
                                        [queue = queue_](void* p) {
                                          cudaSetDevice(queue->ordinal);
                                          queue->batch.flush_later_told();
                                          cudaFree(p);
                                        }),
                  bytes);
    if (zeroed) {
      if (Status ready = started(); !ready) return tl::unexpected(ready.error());
      Status set = checked(cudaMemsetAsync(memory, 0, wanted, work()), "clearing memory", kFaultHint);
      if (!set) return tl::unexpected(set.error());
    }
    return buffer;
  }
  Result<Buffer> allocate_host(std::size_t bytes) override {
    if (Status set = select(); !set) return tl::unexpected(set.error());
    Result<std::shared_ptr<void>> memory = pinned_->take(bytes == 0 ? 1 : bytes);
    if (!memory) return tl::unexpected(memory.error());
    return Buffer(std::move(*memory), bytes);
  }

  Status upload(void* device, std::span<const std::byte> host) override {
    if (host.empty()) return {};
    if (Status ready = started(); !ready) return ready;
    return queue_->staging.upload(device, host);
  }
  Status download(std::span<std::byte> host, const void* device) override {
    if (host.empty()) return {};
    if (Status ready = started(); !ready) return ready;
    return queue_->staging.download(host, device);
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return {};
    if (Status set = select(); !set) return set;
    return queue_->batch.add_copy(to, from, bytes);
  }
  Status gather(void* to, const void* from, const Rows& rows) override {
    if (rows.row_bytes == rows.stride_bytes || rows.count == 1) return copy(to, from, rows.bytes());
    if (rows.bytes() == 0) return {};
    if (Status ready = started(); !ready) return ready;
    return checked(cudaMemcpy2DAsync(to, rows.row_bytes, from, rows.stride_bytes, rows.row_bytes, rows.count,
                                     cudaMemcpyDeviceToDevice, work()),
                   "copying rows on the GPU", kFaultHint);
  }

  Result<Transfer> start_download(std::span<std::byte> host, const void* device) override {
    if (host.empty()) return Transfer();
    Status status = started();
    if (!status) return tl::unexpected(status.error());
    Result<cuda::Event> made = cuda::make_event();
    if (!made) return tl::unexpected(made.error());
    const std::shared_ptr<std::remove_pointer_t<cudaEvent_t>> copied = std::move(*made);
    const auto then = [&](cudaError_t error, std::string_view what) { status = checked(error, what, kFaultHint); };
    const cudaEvent_t launched = queue_->launched.get();
    const cudaStream_t copies = queue_->copies.get();
    then(cudaEventRecord(launched, work()), "marking what was launched");
    if (status) then(cudaStreamWaitEvent(copies, launched, 0), "ordering a copy");
    if (status) {
      then(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, copies), "copying from the GPU");
    }
    if (status) then(cudaEventRecord(copied.get(), copies), "marking a copy");
    if (!status) {
      cudaStreamSynchronize(copies);  // the copy may have begun, and nobody else could wait for it
      return tl::unexpected(status.error());
    }
    return Transfer(copied);
  }
  Status wait(const Transfer& transfer) override {
    if (transfer.mark() == nullptr) return {};
    if (Status set = select(); !set) return set;
    const auto copied = static_cast<cudaEvent_t>(transfer.mark());
    return checked(cudaEventSynchronize(copied), "waiting for a copy", kFaultHint);
  }

  Status synchronize() override {
    if (Status ready = started(); !ready) return ready;
    if (Status done = checked(cudaStreamSynchronize(work()), "waiting for the GPU", kFaultHint); !done) return done;
    return checked(cudaStreamSynchronize(queue_->copies.get()), "waiting for copies from the GPU", kFaultHint);
  }

  Status launch_raw(OpId id, const void* args) override {
    if (Status good = check_args(id, args); !good) return good;
    if (Status set = select(); !set) return set;
    return queue_->batch.add(id, args);
  }
  Status use_graphs(bool graphs) override {
    if (Status set = select(); !set) return set;
    return queue_->batch.use_graphs(graphs && graphs_);
  }

 private:
  cudaStream_t work() const { return queue_->work.get(); }
  Status select() {
    const auto what = [this] { return fmt::format("selecting GPU {}", queue_->ordinal); };
    return checked(cudaSetDevice(queue_->ordinal), what, "check it with nvidia-smi");
  }
  /// Selects the GPU and starts what was gathered, so that what comes next on the stream comes after it.
  Status started() {
    if (Status set = select(); !set) return set;
    return queue_->batch.flush();
  }

  std::shared_ptr<Queue> queue_;
  std::shared_ptr<cuda::PinnedPool> pinned_ = std::make_shared<cuda::PinnedPool>();
  DeviceInfo info_;
  bool graphs_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int ordinal, bool graphs) {
  const std::string place = fmt::format("opening GPU {}", ordinal);
  int count = 0;
  const std::string_view hint = "check the driver with nvidia-smi, or use device 'cpu'";
  if (Status found = checked(cudaGetDeviceCount(&count), "looking for GPUs", hint); !found) {
    return tl::unexpected(found.error());
  }
  if (ordinal < 0 || ordinal >= count) {
    return fail(fmt::format("cuda:{}: no such GPU, expected 0 to {}", ordinal, count - 1));
  }
  cudaDeviceProp properties{};
  if (Status got = checked(cudaGetDeviceProperties(&properties, ordinal), place, hint); !got) {
    return tl::unexpected(got.error());
  }
  DeviceInfo info;
  info.name = properties.name;
  info.isa = fmt::format("sm_{}{}", properties.major, properties.minor);
  info.cpu_features = "";
  // Kernels are built with -ftz=false and rounding is part of each instruction; the mode cannot be changed.
  info.float_environment = "nearest-even, FTZ off, DAZ off";
  info.threads = properties.multiProcessorCount;
  if (Status set = checked(cudaSetDevice(ordinal), place, hint); !set) return tl::unexpected(set.error());
  Result<cuda::Stream> work = cuda::make_stream();
  if (!work) return tl::unexpected(work.error());
  Result<cuda::Stream> copies = cuda::make_stream();
  if (!copies) return tl::unexpected(copies.error());
  Result<cuda::Event> launched = cuda::make_event();
  if (!launched) return tl::unexpected(launched.error());
  auto queue = std::make_shared<Queue>(ordinal, std::move(*work), std::move(*copies), std::move(*launched), graphs);
  return std::make_unique<CudaDevice>(std::move(queue), std::move(info), graphs);
}

}  // namespace nanscope::kernels
