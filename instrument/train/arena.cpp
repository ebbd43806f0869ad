#include "instrument/train/arena.h"

#include <algorithm>

namespace nanscope::train {

Result<kernels::TensorView> Arena::matrix(Format format, std::int64_t rows, std::int64_t columns) {
  const std::size_t bytes = static_cast<std::size_t>(rows * columns) * info(format).storage_bytes();
  if (used_ == buffers_.size()) buffers_.emplace_back();
  kernels::Buffer& buffer = buffers_[used_++];
  if (buffer.bytes() < bytes || buffer.data() == nullptr) {
    Result<kernels::Buffer> larger = device_->allocate(std::max<std::size_t>(bytes, 1), false);
    if (!larger) return tl::unexpected(larger.error());
    buffer = std::move(*larger);
  }
  return kernels::TensorView{buffer.data(), format, rows, columns, columns};
}

}  // namespace nanscope::train
