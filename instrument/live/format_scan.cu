// The scan on a GPU, compiled to PTX that the injected library carries: no kernel of the program is touched.
#include "instrument/live/format_scan.h"

using nanscope::live::FormatCounts;
using nanscope::live::ScanCounts;
using nanscope::live::ScanRange;

namespace {

__device__ void add_across(std::uint64_t* into, std::uint64_t value) {
  for (int distance = 16; distance > 0; distance >>= 1) value += __shfl_xor_sync(~0U, value, distance);
  if (threadIdx.x % 32 == 0 && value != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(into), static_cast<unsigned long long>(value));
  }
}

__device__ void raise_across(std::uint64_t* into, std::uint64_t value) {
  for (int distance = 16; distance > 0; distance >>= 1) {
    const std::uint64_t other = __shfl_xor_sync(~0U, value, distance);
    if (other > value) value = other;
  }
  if (threadIdx.x % 32 == 0 && value != 0) {
    atomicMax(reinterpret_cast<unsigned long long*>(into), static_cast<unsigned long long>(value));
  }
}

}  // namespace

/// `counts` begins as zeros. Any grid of whole warps; integer atomics, so that the grid does not show in the result.
extern "C" __global__ void nanscope_format_scan(ScanRange range, ScanCounts* counts) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  const auto* words = reinterpret_cast<const std::uint32_t*>(range.first_word() * 4);
  ScanCounts mine;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < range.words();
       i += step) {
    std::uint32_t word = words[i];
    if (i == 0 || i + 1 == range.words()) word = range.masked(word, i);
    add_word(mine, word, i);
  }
  for (int i = 0; i < nanscope::live::kReadings; ++i) {
    add_across(&counts->as[i].elements, mine.as[i].elements);
    add_across(&counts->as[i].nan, mine.as[i].nan);
    add_across(&counts->as[i].pos_inf, mine.as[i].pos_inf);
    add_across(&counts->as[i].neg_inf, mine.as[i].neg_inf);
    add_across(&counts->as[i].zero, mine.as[i].zero);
    add_across(&counts->as[i].exponents, mine.as[i].exponents);
    add_across(&counts->as[i].exponent_squares, mine.as[i].exponent_squares);
    raise_across(&counts->as[i].highest, mine.as[i].highest);
  }
  add_across(&counts->checksum, mine.checksum);
}
