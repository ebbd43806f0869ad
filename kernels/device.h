#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"
#include "kernels/op_ids.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// What a device is, as recorded with every run.
struct DeviceInfo {
  std::string name;  ///< "cpu" or the GPU's name
  std::string isa;   ///< baseline, avx2, avx512, sm_90
  std::string cpu_features;
  std::string float_environment;  ///< rounding mode, FTZ and DAZ as found when the device was made
  int threads = 1;
};

class Device;

/// Memory of a device, freed with it. Contents are whatever the memory held before, unless zeroed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<void> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  /// Keeps the memory when the buffer is gone.
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0;
};

/// Bytes of the rows of a matrix, each `stride_bytes` after the one before.
struct Rows {
  std::size_t count = 0;
  std::size_t row_bytes = 0;
  std::size_t stride_bytes = 0;

  std::size_t bytes() const { return count * row_bytes; }
};

/// A copy that was begun; it is over when wait() returns.
class Transfer {
 public:
  /// One that is over.
  Transfer() = default;
  /// `mark` is what the device knows it by.
  explicit Transfer(std::shared_ptr<void> mark) : mark_(std::move(mark)) {}
  void* mark() const { return mark_.get(); }

 private:
  std::shared_ptr<void> mark_;
};

/// A machine that runs ops. Launches are in order; results are visible to download() and to later
/// launches. The same launch gives the same bits on every device.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  /// The device whose memory launches work on: itself, unless it stands for another.
  virtual const Device& memory() const { return *this; }
  /// Whether ops may read memory of the host where it lies, be it mapped from a file.
  virtual bool reads_host_memory() const { return false; }
  virtual Result<Buffer> allocate(std::size_t bytes, bool zeroed) = 0;
  virtual Status upload(void* device, std::span<const std::byte> host) = 0;
  virtual Status download(std::span<std::byte> host, const void* device) = 0;
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Copies rows to where they lie one after the other, without the gaps.
  virtual Status gather(void* to, const void* from, const Rows& rows) = 0;
  /// Host memory that start_download() fills: pinned on a GPU, and kept for the next who asks once it is freed, so that
  /// who frees it has waited for its copies.
  virtual Result<Buffer> allocate_host(std::size_t bytes) = 0;
  /// Begins to copy what all launches until now leave at `device`; later launches run beside it. Until wait(), `host`,
  /// which lies in allocate_host() memory, means nothing and `device` must not be written.
  virtual Result<Transfer> start_download(std::span<std::byte> host, const void* device) = 0;
  virtual Status wait(const Transfer& transfer) = 0;
  virtual Status synchronize() = 0;
  /// Host-addressable memory: views may be read directly after synchronize().
  virtual bool host_addressable() const = 0;

  /// Runs one op. Args is one of the structs in kernels/ops/; errors name the op and the shape.
  template <class Args>
  Status launch(const Args& args) {
    return launch_raw(OpOf<Args>::id, &args);
  }
  virtual Status launch_raw(OpId id, const void* args) = 0;
  /// Whether launches may be started together as a graph, on at first where the device knows how. The order is the
  /// same; who looks at the launches one by one turns it off.
  virtual Status use_graphs(bool) { return {}; }
};

enum class Isa : std::uint8_t { best, baseline, avx2, avx512 };

/// The CPU device: `threads` 0 means one a core. Fails when the CPU lacks the instruction set, or
/// when the float environment (rounding, FTZ, DAZ) is not IEEE's default.
Result<std::unique_ptr<Device>> make_cpu_device(Isa isa = Isa::best, int threads = 0);
/// The CUDA device; fails with one line where the build has no CUDA or the machine no GPU.
Result<std::unique_ptr<Device>> make_cuda_device(int ordinal = 0, bool graphs = true);
/// By name: "cpu", "cpu:baseline", "cpu:avx2", "cpu:avx512", "cuda", "cuda:1", "cuda:1:nograph".
Result<std::unique_ptr<Device>> make_device(const std::string& name, int threads = 0);

}  // namespace nanscope::kernels
