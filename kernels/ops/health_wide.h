#pragma once
/// Health of a tile of f32, bf16 or f16 with AVX2. For health_scan.h.
///
/// A tile is read three times, from the first level of the cache but for the first: what is added up in one go fits 16
/// registers. First the least and the largest code, which say whether a NaN or an Inf is there and whether something
/// must be counted, and for the next two f32 of bf16 and f16: from memory a conversion to f64 takes half as long as
/// from a register. Then the sums, half of the lanes at a time, four columns to a register of f64, in the order that
/// the definition gives.
#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/warp/warp_cpu_wide.h"

#if defined(NANSCOPE_WIDE_REGISTERS)
#include "kernels/ops/health_store.h"
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

  /// `wide`: where the f32 go, if they are wanting; of bf16 of each 16 columns the even ones, then the odd ones.
  NANSCOPE_LANE CodeRange range(const std::byte* first, std::int64_t count, float* wide) {
    Extremes extremes;
    for (const std::byte* at = first; at < first + count * kBytes; at += 64) {
      if constexpr (!kSums) prefetch(at + kAhead);
      NANSCOPE_UNROLL for (int half = 0; half < 64; half += 32) {
        Extremes::add(extremes, at + half);
        if constexpr (kSums && F == Format::bf16) store_bf16(at + half, wide);
        if constexpr (kSums && F == Format::f16) store_f16(at + half, wide);
        wide += 16;
      }
    }
    return range_across(extremes);
  }

  /// Lanes [0, 16) of all columns from `at` on; of the other half where `at` is 16 columns further. `early`: the half
  /// of a tile that is asked for meanwhile, a line at a time: more at once would wait for each other, and then memory
  /// for the sums.
  NANSCOPE_LANE Sums add_half(const float* at, std::int64_t count, const std::byte* early) {
    const Quad none = Quad{};
    const Quad one = none + 1.0;
    Sums sums{{none, none, none, none}, {none, none, none, none}};
    for (const float* end = at + count; at < end; at += kLanes) {
      prefetch(early);
      early += kHalf * kBytes;
      const SixteenColumns x = widen(at);
      NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
        // Half of the additions where products are made: conversions share the units of the others. Memory gives f32
        // no faster.
        const bool by_product = !kFourBytes && i % 2 == 0;
        sums.sum[i] = by_product ? fma(x.of[i], one, sums.sum[i]) : sums.sum[i] + x.of[i];
        sums.squares[i] = fma(x.of[i], x.of[i], sums.squares[i]);
      }
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
  NANSCOPE_LANE void count_finite(const std::byte* first, std::int64_t count, FiniteHealth& health) {
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
    alignas(32) float converted[kFourBytes ? 1 : kTileChannels];
    const CodeRange range = HealthWide::range(first, count, converted);
    if (range.largest >= kInfinite) return false;
    FiniteHealth health{count, 0, 0, 0, {}, value(range.min) + 0.0F, value(range.max) + 0.0F};
    if (range.smallest < kNormal || range.largest == kInfo.max_finite_code) count_finite(first, count, health);
    constexpr double kNotTaken = std::numeric_limits<double>::quiet_NaN();
    health.sums = TwoSums{kNotTaken, kNotTaken};
    if constexpr (kSums) {
      const float* wide = kFourBytes ? reinterpret_cast<const float*>(first) : converted;
      const Sums low = add_half(wide, count, first + kAhead);
      const Sums high = add_half(wide + kHalf, count, first + kAhead + count * kBytes / 2);
      // Zero is reported as +0, so that merging has no order.
      health.sums = TwoSums{across(low.sum, high.sum), across(low.squares, high.squares)} + TwoSums{0.0, 0.0};
    }
    store_finite(result, health);
    return true;
  }
  /// As HealthCodes::scan_tiles().
  NANSCOPE_CALLED std::int64_t scan_tiles(const std::byte* first, std::int64_t columns, std::int64_t tiles,
                                          Health* results) {
    std::int64_t done = 0;
    while (done < tiles && scan(first + done * columns * kBytes, columns, results + done)) ++done;
    return done;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif
