// The CUDA device. Plain device memory, one stream: launches are in order, errors name what failed,
// where, and what to do.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/launchers.h"
#include "kernels/device.h"

namespace nanscope::kernels {
namespace {

Status checked(cudaError_t error, std::string_view what, std::string_view next) {
  if (error == cudaSuccess) return {};
  return fail(
      fmt::format("cuda: {} failed: {} ({}); {}", what, cudaGetErrorString(error), cudaGetErrorName(error), next));
}

constexpr std::string_view kFaultHint =
    "a kernel that was launched earlier may be at fault: run again under compute-sanitizer";

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, cudaStream_t stream, DeviceInfo info)
      : ordinal_(ordinal), stream_(stream), info_(std::move(info)) {}
  ~CudaDevice() override { cudaStreamDestroy(stream_); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

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
    Buffer buffer(std::shared_ptr<void>(memory, [](void* p) { cudaFree(p); }), bytes);
    if (zeroed) {
      if (Status set = checked(cudaMemsetAsync(memory, 0, wanted, stream_), "clearing memory", kFaultHint); !set) {
        return tl::unexpected(set.error());
      }
    }
    return buffer;
  }

  Status upload(void* device, std::span<const std::byte> host) override {
    return move(device, host.data(), host.size(), cudaMemcpyHostToDevice, "copying to the GPU");
  }
  Status download(std::span<std::byte> host, const void* device) override {
    return move(host.data(), device, host.size(), cudaMemcpyDeviceToHost, "copying from the GPU");
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    return move(to, from, bytes, cudaMemcpyDeviceToDevice, "copying on the GPU");
  }
  Status synchronize() override { return checked(cudaStreamSynchronize(stream_), "waiting for the GPU", kFaultHint); }

  Status launch_raw(OpId id, const void* args) override {
    if (Status good = check_args(id, args); !good) return good;
    if (Status set = select(); !set) return set;
    return checked(cuda::launchers.ops[static_cast<int>(id)](args, stream_), fmt::format("launching {}", op_name(id)),
                   kFaultHint);
  }

 private:
  Status select() {
    return checked(cudaSetDevice(ordinal_), fmt::format("selecting GPU {}", ordinal_), "check it with nvidia-smi");
  }
  Status move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, std::string_view what) {
    if (bytes == 0) return {};
    if (Status set = select(); !set) return set;
    if (Status started = checked(cudaMemcpyAsync(to, from, bytes, kind, stream_), what, kFaultHint); !started) {
      return started;
    }
    // Host memory may be pageable and short-lived: the copy is over when the call returns.
    return kind == cudaMemcpyDeviceToDevice ? Status{} : checked(cudaStreamSynchronize(stream_), what, kFaultHint);
  }

  int ordinal_;
  cudaStream_t stream_;
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int ordinal) {
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
  cudaStream_t stream = nullptr;
  if (Status made = checked(cudaStreamCreate(&stream), place, hint); !made) return tl::unexpected(made.error());
  return std::make_unique<CudaDevice>(ordinal, stream, std::move(info));
}

}  // namespace nanscope::kernels
