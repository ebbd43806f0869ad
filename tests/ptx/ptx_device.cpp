#include "tests/ptx/ptx_device.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "kernels/cuda/kernel_table.h"
#include "kernels/op_table.h"

namespace nanscope::ptx {
namespace {

using kernels::Buffer;

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace

const Function* kernel_of(const Program& program, const kernels::cuda::KernelForm& form) {
  const std::string wanted = "run_op<" + demangled(form.name);
  for (const Function& function : program.functions) {
    if (!function.entry) continue;
    const std::string name = demangled(function.name.c_str());
    const std::size_t at = name.find(wanted);
    if (at != std::string::npos && (name[at + wanted.size()] == '>' || name[at + wanted.size()] == ' '))
      return &function;
  }
  return nullptr;
}

PtxDevice::PtxDevice(Program program)
    : program_(std::make_unique<const Program>(std::move(program))), machine_(std::make_shared<Machine>(*program_)) {
  info_.name = "PTX, interpreted";
  info_.isa = "sm_90";
  info_.float_environment = "nearest-even, FTZ off, DAZ off";
}

Result<std::unique_ptr<PtxDevice>> PtxDevice::create(const std::filesystem::path& ptx) {
  std::ifstream file(ptx, std::ios::binary);
  if (!file) return fail(ptx.string() + ": cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<Program> program = read_program(text);
  if (!program) return fail(ptx.string() + ", " + program.error().message);
  return std::unique_ptr<PtxDevice>(new PtxDevice(std::move(*program)));
}

bool PtxDevice::launched(const Function& kernel) const {
  return std::any_of(functions_.begin(), functions_.end(), [&](const auto& one) { return one.second == &kernel; });
}

Result<Buffer> PtxDevice::allocate(std::size_t bytes, bool zeroed) {
  std::byte* memory = machine_->memory().allocate(bytes, zeroed ? Memory::State::written : Memory::State::unwritten);
  if (zeroed) std::memset(memory, 0, bytes);
  return Buffer(std::shared_ptr<void>(
                    memory, [machine = machine_](void* p) { machine->memory().free(static_cast<std::byte*>(p)); }),
                bytes);
}

Result<Buffer> PtxDevice::allocate_host(std::size_t bytes) {
  auto memory = std::make_shared<std::vector<std::byte>>(std::max<std::size_t>(bytes, 1));
  void* data = memory->data();
  return Buffer(std::shared_ptr<void>(std::move(memory), data), bytes);
}

Status PtxDevice::upload(void* device, std::span<const std::byte> host) {
  if (host.empty()) return {};
  if (!machine_->memory().holds(device, host.size())) return fail("an upload to where no memory is");
  std::memcpy(device, host.data(), host.size());
  machine_->memory().mark(device, host.size(), Memory::State::written);
  return {};
}

Status PtxDevice::download(std::span<std::byte> host, const void* device) {
  if (host.empty()) return {};
  if (!machine_->memory().holds(device, host.size())) return fail("a download from where no memory is");
  machine_->memory().read(device, host);
  return {};
}

Status PtxDevice::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  if (!machine_->memory().holds(to, bytes) || !machine_->memory().holds(from, bytes)) {
    return fail("a copy to or from where no memory is");
  }
  machine_->memory().copy(to, from, bytes);
  return {};
}

Status PtxDevice::gather(void* to, const void* from, const kernels::Rows& rows) {
  for (std::size_t row = 0; row < rows.count; ++row) {
    Status copied = copy(static_cast<std::byte*>(to) + row * rows.row_bytes,
                         static_cast<const std::byte*>(from) + row * rows.stride_bytes, rows.row_bytes);
    if (!copied) return copied;
  }
  return {};
}

Result<kernels::Transfer> PtxDevice::start_download(std::span<std::byte> host, const void* device) {
  if (Status done = download(host, device); !done) return tl::unexpected(done.error());
  return kernels::Transfer();
}

Status PtxDevice::launch_raw(kernels::OpId id, const void* args) {
  if (Status good = kernels::check_args(id, args); !good) return good;
  const kernels::cuda::Kernel& kernel = kernels::cuda::kernels.ops[static_cast<int>(id)];
  const std::int64_t warps = kernel.warps(args);
  if (warps <= 0) return {};
  const kernels::cuda::KernelForm form = kernel.form(args);
  const auto [known, unknown] = functions_.try_emplace(form.function, nullptr);
  if (unknown) known->second = kernel_of(*program_, form);
  const Function* function = known->second;
  if (function == nullptr) return fail(fmt::format("no kernel of {} in the PTX", kernels::op_name(id)));
  const std::int64_t blocks =
      std::min((warps + kernels::cuda::kWarpsPerBlock - 1) / kernels::cuda::kWarpsPerBlock, kernels::cuda::kMaxBlocks);
  const std::array arguments{std::span(static_cast<const std::byte*>(args), kernel.args_bytes),
                             std::as_bytes(std::span(&warps, 1))};
  return machine_->launch(
      *function, {static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(kernels::cuda::kThreadsPerBlock)},
      arguments);
}

}  // namespace nanscope::ptx
