#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace nanscope {

/// What a cast to few bits made of small values.
struct Underflow {
  std::int64_t lost = 0;     ///< not zero before the cast, zero after
  std::int64_t coarse = 0;   ///< below the smallest normal number after it
  std::int64_t nonzero = 0;  ///< before the cast
  double median = 0;         ///< magnitude of what is not zero
  double largest = 0;
  std::size_t at = 0;  ///< the element that is largest

  double share(std::int64_t of) const {
    return nonzero > 0 ? static_cast<double>(of) / static_cast<double>(nonzero) : 0;
  }
};

/// Of the finite values before a cast and the values of their codes, as many.
Underflow underflow_of(std::span<const float> source, std::span<const float> codes, float smallest_normal);

}  // namespace nanscope
