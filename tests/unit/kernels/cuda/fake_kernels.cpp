// The kernel table of the fake GPU: each op is known by an address that nobody calls, and runs as the CPU's baseline.
#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/cuda/kernel_table.h"

namespace nanscope::kernels::cuda {
namespace {

template <OpId id>
constexpr char kAddress = 0;

template <class Args>
Kernel kernel() {
  constexpr OpId kId = OpOf<Args>::id;
  const OpEntry& entry = *baseline::op_table.ops[static_cast<int>(kId)];
  return {[](const void*) {
            return KernelForm{&kAddress<kId>, "fake"};
          },
          sizeof(Args), entry.warps, entry.work_per_warp};
}

}  // namespace

const Kernels kernels = {{
#define NANSCOPE_OP(Name, stem, gradient) kernel<Name##Args>(),
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::cuda
