// Every op for the GPU: one warp a task, as many warps as fit, each striding over the tasks.
#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/cuda/launchers.h"

namespace nanscope::kernels::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;
constexpr std::int64_t kMaxBlocks = 65535;

template <class Op>
__global__ void __launch_bounds__(kWarpsPerBlock* kLanes) run_op(const typename Op::Args args, std::int64_t warps) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kLanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarpsPerBlock;
  for (std::int64_t warp = first; warp < warps; warp += step) Op::run(args, warp);
}

template <class Op>
cudaError_t launch(const void* args, cudaStream_t stream) {
  const auto& typed = *static_cast<const typename Op::Args*>(args);
  const std::int64_t warps = Op::warps(typed);
  if (warps <= 0) return cudaSuccess;
  const std::int64_t wanted = (warps + kWarpsPerBlock - 1) / kWarpsPerBlock;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  run_op<Op><<<blocks, kWarpsPerBlock * kLanes, 0, stream>>>(typed, warps);
  return cudaGetLastError();
}

}  // namespace

const Launchers launchers = {{
#define NANSCOPE_OP(Name, stem) launch<Name>,
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::cuda
