#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/result.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/device.h"
#include "tests/ptx/machine.h"

namespace nanscope::ptx {

/// The CUDA device without a GPU: each launch runs the PTX that nvcc made of the op, as many blocks and warps as the
/// CUDA device would start, on memory that watches.
class PtxDevice final : public kernels::Device {
 public:
  /// Errors: a file that cannot be read, or PTX that is not known.
  static Result<std::unique_ptr<PtxDevice>> create(const std::filesystem::path& ptx);

  Machine& machine() { return *machine_; }
  const Program& program() const { return *program_; }
  /// Whether the kernel was launched yet.
  bool launched(const Function& kernel) const;

  const kernels::DeviceInfo& info() const override { return info_; }
  bool host_addressable() const override { return false; }
  Result<kernels::Buffer> allocate(std::size_t bytes, bool zeroed) override;
  Result<kernels::Buffer> allocate_host(std::size_t bytes) override;
  Status upload(void* device, std::span<const std::byte> host) override;
  Status download(std::span<std::byte> host, const void* device) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status gather(void* to, const void* from, const kernels::Rows& rows) override;
  Result<kernels::Transfer> start_download(std::span<std::byte> host, const void* device) override;
  Status wait(const kernels::Transfer& /*transfer*/) override { return {}; }
  Status synchronize() override { return {}; }
  Status launch_raw(kernels::OpId id, const void* args) override;

 private:
  explicit PtxDevice(Program program);

  kernels::DeviceInfo info_;
  std::unique_ptr<const Program> program_;
  std::map<const void*, const Function*> functions_;  ///< of forms that were launched, by KernelForm::function
  std::shared_ptr<Machine> machine_;                  ///< memory may be freed after the device
};

/// The kernel of a form in the PTX; null where there is none.
const Function* kernel_of(const Program& program, const kernels::cuda::KernelForm& form);

}  // namespace nanscope::ptx
