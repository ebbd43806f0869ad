#pragma once
/// Health of one tile of any format, as lanes. For health_scan.h, which says what it is.
///
/// How it is fast for f32, f16 and bf16: a first pass adds up as if every element were a finite normal number, with no
/// test inside the loop; what it finds (a range that reaches zero, the largest value or NaN) says whether it was right.
/// Else the tile is scanned again with every count, by one function for all formats: a function a format, each with its
/// decoder, took g++ more than half a minute to compile.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/tensor/health.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

#if defined(__CUDACC__)
#define NANSCOPE_SCAN NANSCOPE_LANE
#else
#define NANSCOPE_SCAN NANSCOPE_CALLED
#endif

/// Columns [first, last) of a row.
struct HealthTile {
  std::int64_t row;
  std::int64_t first;
  std::int64_t last;
};

/// f32, f16 or bf16: borders between the classes of the format, and decoding without regard to them.
template <Format F>
struct WideFormat {
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  /// decode_ordinary() is right for every code: the format is the upper part of an f32.
  static constexpr bool kExact = F != Format::f16;
  static constexpr std::uint32_t kLargestBits = std::bit_cast<std::uint32_t>(kInfo.max_finite);
  static constexpr std::uint32_t kNormalBits = std::bit_cast<std::uint32_t>(kInfo.min_normal);

  /// f32 bits of a code as if it were a finite normal number. Every other code (but f32's and
  /// bf16's, which are right) gives a magnitude below min_normal or not below max_finite.
  NANSCOPE_LANE U32 decode_ordinary(const U32& code) {
    if constexpr (F == Format::f32) return code;
    if constexpr (F == Format::bf16) return code << 16;
    constexpr std::uint32_t kMagnitude = ((1U << ((kInfo.bits - 1) & 31)) - 1U) << (23 - kInfo.mantissa_bits);
    // An arithmetic shift leaves copies of the sign above the magnitude; one mask drops all but the first.
    const I32 spread = to_i32(code << (32 - kInfo.bits)) >> (8 - kInfo.exponent_bits);
    return (to_u32(spread) & splat_u32(0x80000000U | kMagnitude)) +
           splat_u32(static_cast<std::uint32_t>(127 - kInfo.bias) << 23);
  }
};

/// a * a + sum where a * a is exact, so that one and two roundings are the same bits; the baseline
/// instruction set has no fma.
template <class T>
NANSCOPE_FN T add_exact_square(const T& a, const T& sum) {
#if defined(NANSCOPE_VECTOR_BYTES) && NANSCOPE_VECTOR_BYTES == 16
  return a * a + sum;
#else
  return fma(a, a, sum);
#endif
}

/// The two sums of a tile, uniform.
struct Totals {
  double sum;
  double sum_sq;
};

/// The two sums in f64, as f32, f16, bf16, e8m0 and i32 define them: an accumulator a lane, then the butterfly. Of
/// formats with few bits they are exact, and so in no order.
struct WideSums {
  F64 sum = splat_f64(-0.0);
  F64 sum_sq = splat_f64(-0.0);

  NANSCOPE_LANE void add(WideSums& sums, const F64& x) {
    sums.sum = sums.sum + x;
    sums.sum_sq = add_exact_square(x, sums.sum_sq);
  }
  NANSCOPE_LANE Totals totals(const WideSums& sums) {
#if defined(__CUDACC__)
    Totals totals;
    sum_both(sums.sum, sums.sum_sq, totals.sum, totals.sum_sq);
    return totals;
#else
    return {kernels::NANSCOPE_ISA::sum(sums.sum), kernels::NANSCOPE_ISA::sum(sums.sum_sq)};
#endif
  }
};

/// The same for any format. Squares of e5m2 span more bits than an f64 has: those of either side of 1/4 fit one each,
/// so that their sum is rounded once.
struct AnySums {
  static constexpr float kBorder = 0.25F;
  WideSums wide;
  F64 small_sq = splat_f64(0.0);

  NANSCOPE_LANE void add(AnySums& sums, const F32& x, bool apart) {
    if (!apart) return WideSums::add(sums.wide, to_f64(x));
    const Mask large = abs(x) >= splat_f32(kBorder);
    const F32 zero = splat_f32(0.0F);
    WideSums::add(sums.wide, to_f64(select(large, x, zero)));
    const F64 small = to_f64(select(large, zero, x));
    sums.wide.sum = sums.wide.sum + small;
    sums.small_sq = add_exact_square(small, sums.small_sq);
  }
  NANSCOPE_LANE Totals totals(const AnySums& sums, bool apart) {
    const Totals wide = WideSums::totals(sums.wide);
    return {wide.sum, apart ? wide.sum_sq + sum(sums.small_sq) : wide.sum_sq};
  }
};

/// For who needs no sums.
struct NoSums {
  NANSCOPE_LANE void add(NoSums&, const F64&) {}
  NANSCOPE_LANE Totals totals(const NoSums&) {
    constexpr double kNotTaken = std::numeric_limits<double>::quiet_NaN();
    return {kNotTaken, kNotTaken};
  }
};

struct HealthTiles {
  using Args = HealthScanArgs;
  using Tile = HealthTile;

  static constexpr std::int32_t kInfinity = 0x7f800000;
  struct Range {
    F32 min = splat_f32(HUGE_VALF);
    F32 max = splat_f32(-HUGE_VALF);
  };

  /// `b` where a is NaN; b never is. Where zeros of both signs tie, either.
  NANSCOPE_LANE F32 lower(const F32& a, const F32& b) {
#if defined(__CUDA_ARCH__)
    return fminf(a, b);  // one instruction instead of two
#else
    return select(a < b, a, b);
#endif
  }
  NANSCOPE_LANE F32 higher(const F32& a, const F32& b) {
#if defined(__CUDA_ARCH__)
    return fmaxf(a, b);
#else
    return select(a > b, a, b);
#endif
  }

  NANSCOPE_LANE void widen(Range& range, const F32& x) {
    range.min = lower(x, range.min);
    range.max = higher(x, range.max);
  }

  /// body(column) for each `kWidth` columns of a tile that is a multiple of them wide. On a GPU a whole tile is
  /// unrolled, so that all its loads are on their way before the first is used.
  template <int kWidth, class Body>
  NANSCOPE_LANE void for_steps(const Tile& tile, const Body& body) {
#if defined(__CUDACC__)
    if (tile.last - tile.first == kTileChannels) {
      NANSCOPE_UNROLL for (int at = 0; at < kTileChannels; at += kWidth) body(tile.first + at);
      return;
    }
#endif
    for (std::int64_t column = tile.first; column < tile.last; column += kWidth) body(column);
  }

#if defined(NANSCOPE_VECTOR_BYTES) && NANSCOPE_VECTOR_BYTES < 64
  /// The lanes of one register, over all columns of the tile: accumulators of 32 lanes do not fit 16 registers. What is
  /// made here of the other lanes is dropped by the compiler.
  template <Format F, bool kSums, int kPart>
  NANSCOPE_LANE void add_part(const Args& args, const Tile& tile, WideSums& sums, Range& range, I32& least, I32& most) {
    constexpr int kBytes = (WideFormat<F>::kInfo.bits + 7) / 8;
    Register<float> min = range.min.v[kPart];
    Register<float> max = range.max.v[kPart];
    Register<std::int32_t> lowest = least.v[kPart];
    Register<std::int32_t> highest = most.v[kPart];
    Register<double> sum[2] = {sums.sum.v[2 * kPart], sums.sum.v[2 * kPart + 1]};
    Register<double> squares[2] = {sums.sum_sq.v[2 * kPart], sums.sum_sq.v[2 * kPart + 1]};
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      if constexpr (kPart == 0) {
        const char* next = element_ptr<const char>(args.x, 0, 0) + (tile.row * args.x.stride + column) * kBytes;
        for (int line = 0; line < kLanes * kBytes; line += 64) prefetch_ahead(next + line);
      }
      const F32 all = from_bits(WideFormat<F>::decode_ordinary(load_whole_codes<F>(args.x, tile.row, column)));
      const Register<float> x = all.v[kPart];
      if constexpr (kSums) {
        const F64 wide = to_f64(all);
        NANSCOPE_UNROLL for (int half = 0; half < 2; ++half) {
          const Register<double> one = wide.v[2 * kPart + half];
          sum[half] = sum[half] + one;
#if NANSCOPE_VECTOR_BYTES == 16
          squares[half] = one * one + squares[half];
#else
          squares[half] = detail::fma(one, one, squares[half]);
#endif
        }
      }
      min = x < min ? x : min;
      max = x > max ? x : max;
      const Register<std::int32_t> magnitude = to_i32(raw_bits(abs(all))).v[kPart];
      lowest = magnitude < lowest ? magnitude : lowest;
      if constexpr (!kSums && WideFormat<F>::kExact) highest = highest < magnitude ? magnitude : highest;
    }
    range.min.v[kPart] = min;
    range.max.v[kPart] = max;
    least.v[kPart] = lowest;
    most.v[kPart] = highest;
    for (int half = 0; half < 2; ++half) {
      sums.sum.v[2 * kPart + half] = sum[half];
      sums.sum_sq.v[2 * kPart + half] = squares[half];
    }
  }
  template <Format F, bool kSums, int... kParts>
  NANSCOPE_LANE void add_parts(const Args& args, const Tile& tile, WideSums& sums, Range& range, I32& least, I32& most,
                               std::integer_sequence<int, kParts...>) {
    (add_part<F, kSums, kParts>(args, tile, sums, range, least, most), ...);
  }
#endif

  /// A tile whose columns are a multiple of 32, as if all were finite normal numbers. The answer is
  /// whether some were zero or subnormal. Where no sum would show a NaN, the range reaches Inf for it.
  template <Format F, class Sums>
  NANSCOPE_LANE bool add_ordinary(const Args& args, const Tile& tile, Sums& sums, Range& range) {
    constexpr bool kSums = !std::is_same_v<Sums, NoSums>;
    [[maybe_unused]] constexpr int kBytes = (WideFormat<F>::kInfo.bits + 7) / 8;
    I32 least = splat_i32(kInfinity);  // smallest magnitude, as bits
    I32 most = splat_i32(0);
#if defined(NANSCOPE_VECTOR_BYTES) && NANSCOPE_VECTOR_BYTES < 64
    WideSums wide;
    add_parts<F, kSums>(args, tile, wide, range, least, most, std::make_integer_sequence<int, F32::kCount>{});
    if constexpr (kSums) sums = wide;
#else
    for_steps<kLanes>(tile, [&](std::int64_t column) NANSCOPE_INLINE_LAMBDA {
      const char* next = element_ptr<const char>(args.x, 0, 0) + (tile.row * args.x.stride + column) * kBytes;
      for (int line = 0; line < kLanes * kBytes; line += 64) prefetch_ahead(next + line);
      const U32 code = load_whole_codes<F>(args.x, tile.row, column);
      const F32 x = settled(from_bits(WideFormat<F>::decode_ordinary(code)));
      if constexpr (kSums && F == Format::f32) {
        Sums::add(sums, load_wide(element_ptr<const float>(args.x, tile.row, column), x));
      } else if constexpr (kSums) {
        Sums::add(sums, to_f64(x));
      }
      widen(range, x);
      const I32 magnitude = to_i32(raw_bits(abs(x)));
      least = select(magnitude < least, magnitude, least);
      if constexpr (!kSums && WideFormat<F>::kExact) most = select(most < magnitude, magnitude, most);
    });
#endif
    if constexpr (!kSums && WideFormat<F>::kExact) {
      range.max = select(most < splat_i32(kInfinity), range.max, splat_f32(HUGE_VALF));
    }
    return any(least < splat_i32(static_cast<std::int32_t>(WideFormat<F>::kNormalBits)));
  }

  /// What a pass over a tile adds up, uniform. Zero is reported as +0, so that merging has no order.
  struct Summary {
    double sum;
    double sum_sq;
    float min;
    float max;
    float absmax;
  };
  NANSCOPE_LANE Summary summarise(const Totals& totals, const Range& range) {
    const float min = lowest_across(range.min) + 0.0F;
    const float max = highest_across(range.max) + 0.0F;
    const float absmax = -min > max ? -min : max;
    const auto positive = [](double zero) NANSCOPE_INLINE_LAMBDA { return zero == 0.0 ? 0.0 : zero; };
    return {positive(totals.sum), positive(totals.sum_sq), min, max, min > max ? 0.0F : absmax};
  }
  NANSCOPE_LANE void fill(Health& health, const Tile& tile, const Summary& summary) {
    health.count = static_cast<std::uint64_t>(tile.last - tile.first);
    health.sum = summary.sum;
    health.sum_sq = summary.sum_sq;
    health.min = summary.min;
    health.max = summary.max;
    health.absmax = summary.absmax;
  }

  enum class Found : std::uint8_t { ordinary, finite, special };

  /// The common tile, without special values: no test inside the loop. `special` when some element
  /// is, then `summary` means nothing; `finite` when it is right and counts are wanting. A NaN or Inf
  /// shows in the range or in the sum of squares, which no finite f32 can overflow.
  template <Format F, bool kSums>
  NANSCOPE_LANE Found scan_ordinary(const Args& args, const Tile& tile, Summary& summary) {
    using Sums = std::conditional_t<kSums, WideSums, NoSums>;
    Sums sums;
    Range range;
    const bool small = add_ordinary<F>(args, tile, sums, range);
    summary = summarise(Sums::totals(sums), range);
    const bool finite = summary.absmax < HUGE_VALF && (!kSums || summary.sum_sq < HUGE_VAL);
    if (finite && !small && summary.absmax < WideFormat<F>::kInfo.max_finite) return Found::ordinary;
    return finite && WideFormat<F>::kExact ? Found::finite : Found::special;
  }

  NANSCOPE_LANE std::uint64_t number(const Mask& mask) { return static_cast<std::uint64_t>(count(mask)); }

  /// Zeros, subnormals and largest values of a tile without NaN or Inf.
  template <Format F>
  NANSCOPE_LANE void count_finite(const Args& args, const Tile& tile, Health& health) {
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      const U32 value = WideFormat<F>::decode_ordinary(load_whole_codes<F>(args.x, tile.row, column));
      const U32 magnitude = value & splat_u32(0x7fffffffU);
      const std::uint64_t zero = number(magnitude == splat_u32(0U));
      health.zero += zero;
      health.subnormal += number(magnitude < splat_u32(WideFormat<F>::kNormalBits)) - zero;
      health.saturated += number(magnitude >= splat_u32(WideFormat<F>::kLargestBits));
    }
  }

  /// A tile of f32, f16 or bf16 that is a multiple of 32 wide; false where scan_any() must see it.
  template <Format F, bool kSums>
  NANSCOPE_SCAN bool scan_wide(const Args& args, const Tile& tile, Health* result) {
    Summary summary;
    const Found found = scan_ordinary<F, kSums>(args, tile, summary);
    if (found == Found::special) return false;
    // A struct of its own, whose fields stay in registers until they are stored.
    Health health;
    if (found == Found::finite) count_finite<F>(args, tile, health);
    fill(health, tile, summary);
    store_uniform(result, health);
    return true;
  }

  /// Borders between the classes of a format, as f32 bits.
  struct Borders {
    std::uint32_t normal;
    std::uint32_t largest;
  };
  NANSCOPE_LANE Borders borders_of(Format format) {
    Borders borders{};
    with_format(format, [&](auto constant) NANSCOPE_INLINE_LAMBDA {
      constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(decltype(constant)::value)];
      borders = {std::bit_cast<std::uint32_t>(kInfo.min_normal), std::bit_cast<std::uint32_t>(kInfo.max_finite)};
    });
    return borders;
  }

  /// A lane's part of a count.
  NANSCOPE_LANE U32 one_where(const Mask& mask) { return select(mask, splat_u32(1U), splat_u32(0U)); }

  /// A view whose format is a constant: what asks for it folds.
  template <Format F>
  struct Known {
    NANSCOPE_LANE TensorView view(TensorView x) {
      x.format = F;
      return x;
    }
    NANSCOPE_LANE F32 decode(const TensorView&, const U32& code) { return from_bits(decode_bits<F>(code)); }
  };
  struct Unknown {
    NANSCOPE_LANE const TensorView& view(const TensorView& x) { return x; }
    NANSCOPE_LANE F32 decode(const TensorView& x, const U32& code) { return decode_lanes(x.format, code); }
  };

  /// NaN and Inf of a tile that holds some.
  template <class Knowledge>
  NANSCOPE_SCAN void count_bad(const Args& args, const Tile& tile, Health& health) {
    const TensorView& view = Knowledge::view(args.x);
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      const Mask valid = lanes_below(tile.last - column);
      const F32 x = Knowledge::decode(view, load_code(view, tile.row, column));
      const Mask infinite = valid & is_inf(x);
      const Mask negative = !((raw_bits(x) >> 31) == splat_u32(0U));
      const Mask nan = valid & is_nan(x);
      health.pos_inf += number(infinite & !negative);
      health.neg_inf += number(infinite & negative);
      health.nan += number(nan);
      const std::uint32_t bad = ballot(nan | infinite);
      if (bad == 0 || health.first_bad >= 0) continue;
      health.first_bad = tile.row * args.x.columns + column + first_lane(bad);
    }
  }

  /// Any tile. A CPU has one function of it for all formats, which compiles soon; a GPU has one for each common format.
  template <class Knowledge>
  NANSCOPE_SCAN void scan_any(const Args& args, const Tile& tile, Health* result) {
    const TensorView& view = Knowledge::view(args.x);
    const Borders borders = borders_of(view.format);
    const bool apart = view.format == Format::e5m2 || view.format == Format::e5m2fnuz;
    AnySums sums;
    Range range;
    U32 saturated = splat_u32(0U);
    U32 below_normal = splat_u32(0U);
    U32 zero = splat_u32(0U);
    Mask bad = splat_mask(false);
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      const Mask valid = lanes_below(tile.last - column);
      const F32 x = Knowledge::decode(view, load_code(view, tile.row, column));
      const U32 magnitude = raw_bits(abs(x));
      const Mask finite = valid & is_finite(x);
      bad = bad | (valid & !finite);
      saturated = saturated + one_where(finite & (magnitude >= splat_u32(borders.largest)));
      below_normal = below_normal + one_where(finite & (magnitude < splat_u32(borders.normal)));
      zero = zero + one_where(finite & (magnitude == splat_u32(0U)));
      if (args.sums) AnySums::add(sums, select(finite, x, splat_f32(-0.0F)), apart);
      range.min = lower(select(finite, x, splat_f32(HUGE_VALF)), range.min);
      range.max = higher(select(finite, x, splat_f32(-HUGE_VALF)), range.max);
    }
    Health health;
    if (any(bad)) count_bad<Knowledge>(args, tile, health);
    health.saturated = sum_u32(saturated);
    health.zero = sum_u32(zero);
    health.subnormal = sum_u32(below_normal) - health.zero;
    fill(health, tile, summarise(args.sums ? AnySums::totals(sums, apart) : NoSums::totals({}), range));
    store_uniform(result, health);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
