#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/op_table.h"

namespace nanscope::kernels::cuda {

inline constexpr int kWarpsPerBlock = 4;
inline constexpr int kThreadsPerBlock = 32 * kWarpsPerBlock;
inline constexpr std::int64_t kMaxBlocks = 65535;

/// One kernel of an op. Its parameters are the op's argument struct and the number of warps, an std::int64_t; it runs
/// in blocks of kWarpsPerBlock warps, as many as wanted up to kMaxBlocks.
struct KernelForm {
  const void* function = nullptr;  ///< as cudaLaunchKernel takes it
  const char* name = nullptr;      ///< of the struct whose run() it is, as std::type_info has it
};

/// An op's kernels, of which its arguments choose one: few have more than one. `args` points to an argument struct.
struct Kernel {
  KernelForm (*form)(const void* args) = nullptr;
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
