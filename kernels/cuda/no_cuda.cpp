// In place of the CUDA device where nanscope is built without it.
#include <fmt/format.h>

#include "kernels/device.h"

namespace nanscope::kernels {

Result<std::unique_ptr<Device>> make_cuda_device(int ordinal, bool) {
  return fail(
      fmt::format("cuda:{}: this build of nanscope has no CUDA device; configure with -DNANSCOPE_CUDA=ON", ordinal));
}

}  // namespace nanscope::kernels
