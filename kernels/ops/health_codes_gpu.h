#pragma once
/// Health of a tile of e4m3, e4m3fnuz or int8 codes on a GPU, in integers: four codes a load, sums across the warp by
/// single instructions. For health_scan.h; health_codes.h is the CPU's.
#include "kernels/warp/warp.h"

#if defined(__CUDACC__)
#include "core/tensor/health.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Kind: e4m3, e4m3fnuz or int8.
template <Format Kind>
struct HealthCodesGpu {
  static constexpr bool kInteger = Kind == Format::int8;
  static constexpr bool kFnuz = Kind == Format::e4m3fnuz;
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(Kind)];
  static constexpr float kUnit = kInteger ? 1.0F : kInfo.min_subnormal;
  static constexpr int kLargest = static_cast<int>(kInfo.max_finite / kUnit);
  static constexpr int kAtOnce = 4 * kLanes;
  static_assert(kTileChannels * (15 << 14) < INT32_MAX, "a tile's sum of units fits 32 bits");

  struct Totals {
    U32 sum = 0;
    U64 squares = 0;
    U32 nonzero = 0;
    U32 normal = 0;
    U32 minus_zero = 0;
    I32 min = INT32_MAX;
    I32 max = INT32_MIN;
  };

  /// Units of the format in the code whose byte is the highest of `top`. As bits of an f32 the code is its value times
  /// 2^(bias - 127), subnormals too; adding a number whose last place is a unit leaves the units in its low bits.
  NANSCOPE_LANE I32 units(U32 top) {
    if constexpr (kInteger) return to_i32(top) >> 24;
    constexpr float kPlace = 0x1.8p21F;
    const F32 raw = from_bits(to_u32(to_i32(top) >> 4) & 0x87f00000U);
    return to_i32(raw_bits(fma(raw, 0x1p127F, kPlace)) - std::bit_cast<std::uint32_t>(kPlace));
  }

  /// How many bytes of four are set in bit 7.
  NANSCOPE_LANE U32 marked(U32 bytes) { return static_cast<U32>(__popc(bytes & 0x80808080U)); }

  NANSCOPE_LANE void add(Totals& totals, U32 four) {
    const U32 magnitude = four & 0x7f7f7f7fU;
    const U32 carried = magnitude + 0x7f7f7f7fU;  // into bit 7 of bytes that are not 0
    totals.nonzero += marked(kInteger ? carried | four : carried);
    if constexpr (!kInteger) totals.normal += marked(magnitude + 0x78787878U);
    if constexpr (kFnuz) totals.minus_zero |= four & ~carried & 0x80808080U;
    NANSCOPE_UNROLL for (int byte = 0; byte < 4; ++byte) {
      const I32 value = units(four << (24 - 8 * byte));
      totals.sum += to_u32(value);
      totals.squares += static_cast<U64>(static_cast<std::int64_t>(value) * value);
      totals.min = value < totals.min ? value : totals.min;
      totals.max = value > totals.max ? value : totals.max;
    }
  }

  NANSCOPE_LANE std::uint64_t count_saturated(const std::uint8_t* codes, std::int64_t count) {
    U32 saturated = 0;
    for (std::int64_t at = lane_id(); at < count; at += kLanes) {
      const I32 value = units(static_cast<U32>(codes[at]) << 24);
      saturated += value >= kLargest || value <= -kLargest ? 1U : 0U;
    }
    return sum_u32(saturated);
  }

  /// Health of `count` codes, a multiple of kAtOnce, from an address that is one of 4; false where some are NaN, and
  /// nothing is written.
  NANSCOPE_LANE bool scan(const std::uint8_t* codes, std::int64_t count, bool sums, Health* result) {
    Totals totals;
    const auto* words = reinterpret_cast<const std::uint32_t*>(codes) + lane_id();
    if (count == kTileChannels) {
      constexpr int kWords = static_cast<int>(kTileChannels) / kAtOnce;
      U32 loaded[kWords];  // on their way before the first is used
      NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) loaded[i] = words[i * kLanes];
      NANSCOPE_UNROLL for (int i = 0; i < kWords; ++i) add(totals, loaded[i]);
    } else {
      for (std::int64_t at = 0; at < count; at += kAtOnce) add(totals, words[at / 4]);
    }
    const std::int32_t min = min_i32_across(totals.min);
    const std::int32_t max = max_i32_across(totals.max);
    const bool special = max > kLargest || min < -kLargest - (kInteger ? 1 : 0);
    if (special || (kFnuz && any(totals.minus_zero != 0))) return false;

    const std::uint32_t counted = sum_u32(totals.nonzero | totals.normal << 16);
    // A lane adds up less than 2^41.
    const std::uint64_t low = sum_u32(static_cast<U32>(totals.squares) & 0xffffffU);
    const std::uint64_t high = sum_u32(static_cast<U32>(totals.squares >> 24));
    const auto sum = static_cast<std::int32_t>(sum_u32(totals.sum));
    Health health;
    health.count = static_cast<std::uint64_t>(count);
    health.zero = health.count - (counted & 0xffffU);
    if constexpr (!kInteger) health.subnormal = (counted & 0xffffU) - (counted >> 16);
    if (max >= kLargest || min <= -kLargest) health.saturated = count_saturated(codes, count);
    constexpr double kNotTaken = std::numeric_limits<double>::quiet_NaN();
    constexpr double kWide = kUnit;
    health.sum = sums ? static_cast<double>(sum) * kWide : kNotTaken;
    health.sum_sq = sums ? static_cast<double>(low + (high << 24)) * (kWide * kWide) : kNotTaken;
    health.min = static_cast<float>(min) * kUnit;
    health.max = static_cast<float>(max) * kUnit;
    health.absmax = -health.min > health.max ? -health.min : health.max;
    store_uniform(result, health);
    return true;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
