#pragma once
#include <cstdint>
#include <span>

namespace nanscope {

/// Exact summary of a set of elements. Counts, minima, maxima and first_bad merge exactly in any
/// order; the two sums are double and are merged in ascending tile order, so they are a function
/// of the data and the shape alone. Plain data: kernels write it, recordings store it as is.
struct Health {
  std::uint64_t count = 0;  ///< elements seen
  std::uint64_t nan = 0;
  std::uint64_t pos_inf = 0;
  std::uint64_t neg_inf = 0;
  std::uint64_t saturated = 0;  ///< |x| equal to the format's largest finite value
  std::uint64_t subnormal = 0;  ///< nonzero below the format's smallest normal
  std::uint64_t zero = 0;
  std::uint64_t flushed = 0;    ///< zero here, nonzero in the source of the cast that made it
  std::uint64_t clipped = 0;    ///< beyond the largest finite value in the source of the cast that made it
  std::int64_t first_bad = -1;  ///< smallest row-major index in the tensor of a NaN or Inf, -1 when none
  double sum = 0;               ///< over finite elements
  double sum_sq = 0;            ///< over finite elements
  float min = 0;                ///< over finite elements; min > max when there is none (+Inf, -Inf)
  float max = 0;
  float absmax = 0;            ///< over finite elements, 0 when there is none
  std::uint32_t reserved = 0;  ///< keeps the layout free of padding bytes; always 0

  constexpr std::uint64_t bad() const { return nan + pos_inf + neg_inf; }
  constexpr std::uint64_t finite() const { return count - bad(); }
  /// NaN-free: 0 when nothing is finite.
  double mean() const;
  double variance() const;
};
static_assert(sizeof(Health) == 112, "recordings store this layout");

/// Neutral element of merge().
Health empty_health();
/// Adds `part`, which must come after `into` in row-major order for the sums to be reproducible.
void merge(Health& into, const Health& part);
/// Adds each of `parts`, in their order.
void merge(Health& into, std::span<const Health> parts);

/// Finest tile of the health pyramid: one token row by this many channels. At half of it the end of a
/// tile (reductions, 112 bytes written) costs as much as 256 fp8 elements, and half the read bandwidth is lost.
inline constexpr std::int64_t kTileChannels = 512;

}  // namespace nanscope
