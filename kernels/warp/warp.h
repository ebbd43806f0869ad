#pragma once
/// The warp every op is written against: exactly 32 lanes. On CUDA a lane is a thread and the lane
/// types are scalars; on the CPU a lane type is an array of SIMD registers that together hold 32
/// lanes. An op source must compile for both, so it follows these rules:
///
/// - F32, U32, I32, F64, Mask are *varying* (one value a lane); float, int64_t, bool are *uniform*.
///   splat() makes a varying from a uniform. On CUDA both are the same type: never overload on it.
/// - Loops over data are strided by kLanes; a branch on data is select(); a uniform branch takes its
///   condition from any(), all() or ballot().
/// - Reductions are sum(), max_*(), min_*(): one xor butterfly 16 8 4 2 1, all lanes get the result.
///   Inactive lanes of a sum hold -0.0 (the additive identity), of a max -Inf, of a min +Inf.
/// - a*b+c is two roundings; fma(a,b,c) is one. Division and sqrt are correctly rounded.
/// - Bits become observable only through store_*, encode and bits(): there NaN is canonical
///   (0x7fffffff for f32), on both machines. Raw copies (copy_*) keep their bits.
///
/// The translation unit defines NANSCOPE_ISA (baseline, avx2, avx512 or cuda), which names the
/// namespace that all lane code lives in: objects built for different instruction sets must not
/// share inline functions.
#ifndef NANSCOPE_ISA
#error "lane code is compiled once per instruction set: define NANSCOPE_ISA"
#endif

#include <cstdint>

namespace nanscope::kernels {
inline constexpr int kLanes = 32;
inline constexpr std::uint32_t kCanonicalNan = 0x7fffffffU;
}  // namespace nanscope::kernels

#if defined(__CUDACC__)
#include "kernels/warp/warp_cuda.h"
#else
#include "kernels/warp/warp_cpu.h"
#endif
