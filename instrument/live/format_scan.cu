// The scan on a GPU, compiled to PTX that the injected library carries: no kernel of the program is touched.
#include "instrument/live/format_scan.h"

using nanscope::live::ScanCountsOf;
using nanscope::live::ScanJob;

namespace {

__device__ bool first_of_warp() { return threadIdx.x % 32 == 0; }

struct AddAcross {
  template <class Count>
  __device__ void operator()(std::uint64_t& into, Count value) const {
    for (int distance = 16; distance > 0; distance >>= 1) value += __shfl_xor_sync(~0U, value, distance);
    if (first_of_warp() && value != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&into), static_cast<unsigned long long>(value));
    }
  }
};

struct RaiseAcross {
  template <class Count>
  __device__ void operator()(std::uint64_t& into, Count value) const {
    for (int distance = 16; distance > 0; distance >>= 1) {
      const Count other = __shfl_xor_sync(~0U, value, distance);
      if (other > value) value = other;
    }
    if (first_of_warp() && value != 0) {
      atomicMax(reinterpret_cast<unsigned long long*>(&into), static_cast<unsigned long long>(value));
    }
  }
};

}  // namespace

/// Any grid of whole warps in which a warp looks at no more than 2^14 words; integer atomics, so that the grid does not
/// show in the result.
extern "C" __global__ void nanscope_format_scan(ScanJob job) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  const auto* words = reinterpret_cast<const std::uint32_t*>(job.range.first_word() * 4);
#pragma unroll 1
  for (int pass = 0; pass < job.passes(); ++pass) {
    ScanCountsOf<std::uint32_t> mine;
    for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < job.words(pass);
         i += step) {
      job.look(mine, words[i], i, pass);
    }
    // Most arguments of a kernel are its inputs: nothing in them has changed.
    if (__any_sync(~0U, mine.words != 0) == 0) continue;
    merge_counts(job.scan->of(pass), mine, AddAcross(), RaiseAcross());
  }
}
