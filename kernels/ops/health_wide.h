#pragma once
/// Health of a tile of f32, bf16 or f16 with AVX2. For health_scan.h.
///
/// A tile is read three times, from the first level of the cache but for the first: what is added up in one go fits 16
/// registers. First the least and the largest code, which say whether a NaN or an Inf is there and whether something
/// must be counted; then the sums, half of the lanes at a time, four columns to a register of f64, in the order that
/// the definition gives.
#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/warp/warp_cpu_wide.h"

#if defined(NANSCOPE_WIDE_REGISTERS)
#include "core/tensor/health.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

template <Format F, bool kSums>
struct HealthWide {
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  static constexpr int kBytes = (kInfo.bits + 7) / 8;
  static constexpr bool kFourBytes = kBytes == 4;
  using Signed = std::conditional_t<kFourBytes, std::int32_t, std::int16_t>;
  using Unsigned = std::make_unsigned_t<Signed>;
  using Extremes = CodeExtremes<Signed, Unsigned>;
  using CodeRegister = typename Extremes::UnsignedRegister;
  static constexpr int kHalf = kLanes / 2;
  static constexpr std::uint32_t kInfinite = ((1U << kInfo.exponent_bits) - 1U) << kInfo.mantissa_bits;
  static constexpr std::uint32_t kNormal = 1U << kInfo.mantissa_bits;
  /// Bytes from a column to what is asked for early: the tile after it, and what is hashed meanwhile.
  static constexpr int kAhead = 3072;

  /// Of one half of the lanes.
  struct Sums {
    Quad sum[4];
    Quad squares[4];
  };

  NANSCOPE_LANE CodeRange range(const std::byte* first, std::int64_t count) {
    Extremes extremes;
    for (const std::byte* at = first; at < first + count * kBytes; at += 64) {
      prefetch(at + kAhead);
      Extremes::add(extremes, at);
      Extremes::add(extremes, at + 32);
    }
    return range_across(extremes);
  }

  NANSCOPE_LANE SixteenColumns columns(const std::byte* at) {
    if constexpr (F == Format::f32) return widen(reinterpret_cast<const float*>(at));
    if constexpr (F == Format::bf16) return widen_bf16(at);
    return widen_f16(at);
  }

  /// Lanes [0, 16) of all columns from `at` on; of the other half where `at` is 16 columns further.
  NANSCOPE_LANE Sums add_half(const std::byte* at, std::int64_t count) {
    const Quad none = Quad{};
    Sums sums{{none, none, none, none}, {none, none, none, none}};
    for (std::int64_t column = 0; column < count; column += kLanes) {
      const SixteenColumns x = columns(at);
      NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
        sums.sum[i] = sums.sum[i] + x.of[i];
        sums.squares[i] = fma(x.of[i], x.of[i], sums.squares[i]);
      }
      at += kLanes * kBytes;
    }
    return sums;
  }

  /// The butterfly of the 32 lanes.
  NANSCOPE_LANE double across(const Quad (&low)[4], const Quad (&high)[4]) {
    if constexpr (F != Format::bf16) {
      return sum_of_quad(((low[0] + high[0]) + (low[2] + high[2])) + ((low[1] + high[1]) + (low[3] + high[3])));
    }
    // Even lanes, then odd ones: 8 apart in two registers, 4 in the halves of one, then 2.
    const Quad even = (low[0] + high[0]) + (low[1] + high[1]);
    const Quad odd = (low[2] + high[2]) + (low[3] + high[3]);
    return sum_of_quad(even) + sum_of_quad(odd);
  }

  NANSCOPE_LANE float value(std::uint32_t code) { return from_bits_uniform(decode_bits<F>(code)); }

  /// Zeros, subnormals and largest values of a tile without NaN or Inf.
  NANSCOPE_LANE void count_finite(const std::byte* first, std::int64_t count, Health& health) {
    CodeRegister zero = {};
    CodeRegister below = {};
    CodeRegister largest = {};
    for (const std::byte* at = first; at < first + count * kBytes; at += sizeof(CodeRegister)) {
      CodeRegister magnitude;
      __builtin_memcpy(&magnitude, at, sizeof magnitude);
      magnitude &= static_cast<Unsigned>(~Extremes::kSignBit);
      zero -= reinterpret_cast<CodeRegister>(magnitude == Unsigned{0});
      below -= reinterpret_cast<CodeRegister>(magnitude < static_cast<Unsigned>(kNormal));
      largest -= reinterpret_cast<CodeRegister>(magnitude == static_cast<Unsigned>(kInfo.max_finite_code));
    }
    for (std::size_t i = 0; i < sizeof(CodeRegister) / sizeof(Unsigned); ++i) {
      health.zero += zero[i];
      health.subnormal += below[i];
      health.saturated += largest[i];
    }
    health.subnormal -= health.zero;
  }

  /// Health of `count` elements from `first` on, a multiple of 32 and at most a tile; false where some are NaN or Inf,
  /// and nothing is written.
  NANSCOPE_LANE bool scan(const std::byte* first, std::int64_t count, Health* result) {
    const CodeRange range = HealthWide::range(first, count);
    if (range.largest >= kInfinite) return false;
    Health health;
    if (range.smallest < kNormal || range.largest == kInfo.max_finite_code) count_finite(first, count, health);
    health.count = static_cast<std::uint64_t>(count);
    health.sum = health.sum_sq = std::numeric_limits<double>::quiet_NaN();
    if constexpr (kSums) {
      const Sums low = add_half(first, count);
      const Sums high = add_half(first + kHalf * kBytes, count);
      // Zero is reported as +0, so that merging has no order.
      health.sum = across(low.sum, high.sum) + 0.0;
      health.sum_sq = across(low.squares, high.squares) + 0.0;
    }
    health.min = value(range.min) + 0.0F;
    health.max = value(range.max) + 0.0F;
    health.absmax = value(range.largest);
    *result = health;
    return true;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
