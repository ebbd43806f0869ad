#pragma once
#include <cstdint>

/// Marks integer code that runs unchanged on the host, on a CUDA thread and, through a lane type
/// of 32 elements, on a CPU warp. Forced inline so that uniform parameters fold away.
#if defined(__CUDACC__)
#define NANSCOPE_HD __host__ __device__ __forceinline__
#else
#define NANSCOPE_HD inline __attribute__((always_inline))
#endif

namespace nanscope {

/// Lane-wise choice, the only branch on data that lane code has. A 32-lane type brings its own
/// overload, found by argument-dependent lookup.
NANSCOPE_HD constexpr std::uint32_t select(bool condition, std::uint32_t if_true, std::uint32_t if_false) {
  return condition ? if_true : if_false;
}

}  // namespace nanscope
