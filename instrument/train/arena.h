#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nanscope::train {

/// Matrices that live until reset(), after which the same requests get the same memory. Nothing is cleared.
class Arena {
 public:
  explicit Arena(kernels::Device& device) : device_(&device) {}

  Result<kernels::TensorView> matrix(Format format, std::int64_t rows, std::int64_t columns);
  void reset() { used_ = 0; }

 private:
  kernels::Device* device_;
  std::vector<kernels::Buffer> buffers_;
  std::size_t used_ = 0;
};

}  // namespace nanscope::train
