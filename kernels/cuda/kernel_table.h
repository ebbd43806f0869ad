#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/op_table.h"

namespace nanscope::kernels::cuda {

inline constexpr int kWarpsPerBlock = 4;
inline constexpr int kThreadsPerBlock = 32 * kWarpsPerBlock;
inline constexpr std::int64_t kMaxBlocks = 65535;

/// One op's kernel. Its parameters are the op's argument struct and the number of warps, an std::int64_t; it runs in
/// blocks of kWarpsPerBlock warps, as many as wanted up to kMaxBlocks. `args` points to an argument struct.
struct Kernel {
  const void* function = nullptr;  ///< as cudaLaunchKernel takes it
  std::size_t args_bytes = 0;
  std::int64_t (*warps)(const void* args) = nullptr;
  std::int64_t (*work_per_warp)(const void* args) = nullptr;  ///< element operations
};

/// The kernels of all ops, indexed by OpId.
struct Kernels {
  Kernel ops[kOpCount];
};
extern const Kernels kernels;

}  // namespace nanscope::kernels::cuda
