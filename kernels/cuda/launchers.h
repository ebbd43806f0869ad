#pragma once
#include <cuda_runtime_api.h>

#include "kernels/op_table.h"

namespace nanscope::kernels::cuda {

/// Starts each op on a stream, indexed by OpId. `args` points to the op's argument struct, in host memory.
struct Launchers {
  cudaError_t (*ops[kOpCount])(const void* args, cudaStream_t stream);
};
extern const Launchers launchers;

}  // namespace nanscope::kernels::cuda
