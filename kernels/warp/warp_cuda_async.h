#pragma once
/// Copies from global to shared memory that a thread starts and does not wait for: cp.async of the PTX ISA. For what
/// only a GPU's path of an op does.
///
/// What a thread has copied is there for itself after wait_async(); for the other lanes of its warp after a warp_sync()
/// that follows. What was read from the place before must be behind a warp_sync() too.
#include "kernels/warp/warp_cuda.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// An address of shared memory as instructions of its own take it.
NANSCOPE_FN U32 shared_address(const void* memory) { return static_cast<U32>(__cvta_generic_to_shared(memory)); }

/// 16 bytes at `from` + kFrom, a multiple of 16.
template <int kFrom>
NANSCOPE_FN uint4 load_shared(U32 from) {
  uint4 d;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4+%5];"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "r"(from), "n"(kFrom)
               : "memory");
  return d;
}

/// 16 bytes from `from` + kFrom to `to` + kTo, multiples of 16; not by way of the first cache.
template <int kTo, int kFrom>
NANSCOPE_FN void copy_async(U32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;" ::"r"(to), "l"(from), "n"(kTo), "n"(kFrom) : "memory");
}
/// Ends a group of copies, which may be empty.
NANSCOPE_FN void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until only the last kPending groups of this thread may be on their way.
template <int kPending>
NANSCOPE_FN void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
