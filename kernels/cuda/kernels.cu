// Every op for the GPU: one warp a task, as many warps as fit, each striding over the tasks.
#include <type_traits>

#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/cuda/kernel_table.h"

namespace nanscope::kernels::cuda {
namespace {

static_assert(kThreadsPerBlock == kWarpsPerBlock * kLanes && kWarpsPerBlock == kBlockWarps);

/// Blocks that shall fit a multiprocessor at once, where an op says so: the fewer, the more registers ptxas may take.
template <class Op>
constexpr int blocks_at_once() {
  if constexpr (requires { Op::kBlocksAtOnce; }) return Op::kBlocksAtOnce;
  return 0;
}

template <class Op>
__global__ void __launch_bounds__(kThreadsPerBlock, blocks_at_once<Op>())
    run_op(const typename Op::Args args, std::int64_t warps) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kLanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarpsPerBlock;
  for (std::int64_t warp = first; warp < warps; warp += step) Op::run(args, warp);
}

template <class Op>
Kernel kernel() {
  using Args = typename Op::Args;
  static_assert(std::is_trivially_copyable_v<Args>, "arguments are copied as bytes");
  return {reinterpret_cast<const void*>(run_op<Op>), sizeof(Args),
          [](const void* args) { return Op::warps(*static_cast<const Args*>(args)); },
          [](const void* args) { return Op::work_per_warp(*static_cast<const Args*>(args)); }};
}

}  // namespace

const Kernels kernels = {{
#define NANSCOPE_OP(Name, stem, gradient) kernel<Name>(),
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::cuda
