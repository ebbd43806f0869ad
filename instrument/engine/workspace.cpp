#include "instrument/engine/workspace.h"

namespace nanscope {

Result<kernels::TensorView> Workspace::matrix(Slot slot, Format format, std::int64_t rows, std::int64_t columns) {
  constexpr std::size_t kAlignment = 64;
  Memory& memory = slots_[static_cast<std::size_t>(slot)];
  const std::size_t bytes = static_cast<std::size_t>(rows * columns) * info(format).storage_bytes();
  if (bytes > memory.bytes) {
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ + rounded <= arena_.bytes()) {
      memory = {static_cast<std::byte*>(arena_.data()) + used_, rounded, {}};
      used_ += rounded;
    } else {
      Result<kernels::Buffer> buffer = device_->allocate(rounded, false);
      if (!buffer) return tl::unexpected(buffer.error());
      memory = {static_cast<std::byte*>(buffer->data()), rounded, *buffer};
    }
  }
  return kernels::TensorView{memory.data, format, rows, columns, columns};
}

}  // namespace nanscope
