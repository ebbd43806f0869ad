#pragma once
#include <cstddef>
#include <cstdint>

/// The loops over every element of a checkpoint that quantizing it takes beside making codes, compiled once for every
/// instruction set. All of them give the same numbers.
namespace nanscope {

/// Lanes of the sums, added in their order at the end.
inline constexpr std::size_t kLossLanes = 16;

struct LossSums {
  double signal[kLossLanes] = {};
  double noise[kLossLanes] = {};
  std::int64_t flushed = 0;  ///< not 0, stored as 0
};

struct BlockCounts {
  std::int64_t clipped = 0;  ///< elements beyond their block's limit
  std::int64_t owned = 0;    ///< blocks whose largest element is at least `owns` times every other
};

struct WeightLoops {
  /// `count` codes of bf16 as f32; a NaN stays some NaN.
  void (*widen_bf16)(const std::byte* from, float* to, std::size_t count);
  /// Of a multiple of 16 elements.
  void (*loss)(const float* values, const float* stored, std::size_t count, LossSums& sums);
  /// Of a row of `blocks` blocks beside each other, `width` columns each but for the last; columns and width are
  /// multiples of 16.
  void (*blocks)(const float* values, std::int64_t rows, std::int64_t columns, std::int64_t width, const float* limits,
                 float owns, BlockCounts& counts);
};

/// The fastest that this machine has.
const WeightLoops& weight_loops();

}  // namespace nanscope
