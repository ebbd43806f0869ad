#pragma once
/// Health: one pass over a tensor of any format, one Health per tile of one row by kTileChannels.
#include "core/tensor/health.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D); source (T, D) f32/f16/bf16 or not given: what x was cast from, divided by scale
/// before the cast, for the flushed and clipped counts; tiles: T * ceil(D / kTileChannels) Health, row-major.
/// first_bad is the row-major index row * D + column. Sums: f64, per lane ascending, then the butterfly.
struct HealthScanArgs {
  TensorView x;
  TensorView source;
  TensorView source_scales;  ///< (T, 1) or (1, 1) f32; not given: 1
  Health* tiles = nullptr;
};

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <bit>
#include <cmath>

#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Borders between the classes of one format: on codes for the fast test, on f32 bits for the counts.
template <Format F>
struct HealthBorders {
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  /// A sign-and-magnitude float: codes order as magnitudes do.
  static constexpr bool kFloat = kInfo.exponent_bits > 0 && kInfo.has_sign;
  static constexpr std::uint32_t kMagnitude = (1U << ((kInfo.bits - 1) & 31)) - 1U;
  static constexpr std::uint32_t kNormalCode = 1U << (kInfo.mantissa_bits & 31);
  static constexpr std::uint32_t kLargestBits = std::bit_cast<std::uint32_t>(kInfo.max_finite);
  static constexpr std::uint32_t kNormalBits = std::bit_cast<std::uint32_t>(kInfo.min_normal);
  static constexpr float kLargest = kInfo.max_finite;

  /// Lanes that some count must see: zero, subnormal, largest finite, Inf, NaN. One unsigned compare.
  NANSCOPE_LANE Mask special(const U32& code) {
    constexpr std::uint32_t kBias = 0x80000000U;  // signed compares order like unsigned ones once biased
    const U32 above_normal = (code & splat_u32(kMagnitude)) + splat_u32(kBias - kNormalCode);
    return to_i32(above_normal) >= to_i32(splat_u32(kInfo.max_finite_code - kNormalCode + kBias));
  }
  /// f32 bits of a code that is not special.
  NANSCOPE_LANE U32 decode_ordinary(const U32& code) {
    if constexpr (F == Format::f32) return code;
    if constexpr (F == Format::bf16) return code << 16;
    const U32 magnitude = (code & splat_u32(kMagnitude)) << (23 - kInfo.mantissa_bits);
    const U32 sign = (code >> (kInfo.bits - 1)) << 31;
    return (magnitude + splat_u32(static_cast<std::uint32_t>(127 - kInfo.bias) << 23)) | sign;
  }
};

struct HealthScan {
  using Args = HealthScanArgs;

  NANSCOPE_HOST std::int64_t tiles_per_row(const Args& args) { return div_up(args.x.columns, kTileChannels); }
  /// Warp = one tile.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.x.rows * tiles_per_row(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args&) { return kTileChannels; }

  struct Spread {
    F64 sum;
    F64 sum_sq;
    F32 min;
    F32 max;
  };

  NANSCOPE_LANE void add(Spread& lanes, const F32& x) {
    const F64 wide = to_f64(x);
    lanes.sum = lanes.sum + wide;
    lanes.sum_sq = lanes.sum_sq + wide * wide;
    lanes.min = min_ignore(lanes.min, x);
    lanes.max = max_ignore(lanes.max, x);
  }

  NANSCOPE_LANE std::uint64_t number(const Mask& mask) { return static_cast<std::uint64_t>(count(mask)); }

  /// A group of which some lanes are special or absent.
  template <class Borders>
  NANSCOPE_LANE void add_special(Spread& lanes, Health& tile, const U32& value, const Mask& valid, std::int64_t index) {
    const U32 magnitude = value & splat_u32(0x7fffffffU);
    const Mask negative = !((value >> 31) == splat_u32(0U));
    const Mask finite = valid & (magnitude < splat_u32(0x7f800000U));
    const Mask infinite = valid & (magnitude == splat_u32(0x7f800000U));
    const Mask nonzero = !(magnitude == splat_u32(0U));
    tile.nan += number(valid & (magnitude > splat_u32(0x7f800000U)));
    tile.pos_inf += number(infinite & !negative);
    tile.neg_inf += number(infinite & negative);
    tile.saturated += number(finite & (magnitude >= splat_u32(Borders::kLargestBits)));
    tile.subnormal += number(finite & nonzero & (magnitude < splat_u32(Borders::kNormalBits)));
    tile.zero += number(finite & !nonzero);
    const std::uint32_t bad = ballot(valid & !finite);
    if (bad != 0 && tile.first_bad < 0) tile.first_bad = index + first_lane(bad);
    const F32 x = from_bits(value);
    const F64 wide = to_f64(select(finite, x, splat_f32(-0.0F)));
    lanes.sum = lanes.sum + wide;
    lanes.sum_sq = lanes.sum_sq + wide * wide;
    lanes.min = min_ignore(lanes.min, select(finite, x, splat_f32(HUGE_VALF)));
    lanes.max = max_ignore(lanes.max, select(finite, x, splat_f32(-HUGE_VALF)));
  }

  /// What the cast from `source` lost.
  template <class Borders>
  NANSCOPE_LANE void add_losses(const Args& args, Health& tile, const U32& value, const Mask& valid, std::int64_t row,
                                std::int64_t column) {
    const F32 source = load(args.source, row, column, 0.0F);
    const F32 scaled = source / splat_f32(read_scale(args.source_scales, row));
    const Mask zero = (value & splat_u32(0x7fffffffU)) == splat_u32(0U);
    const Mask something = !(source == splat_f32(0.0F)) & !is_nan(source);
    tile.flushed += number(valid & zero & something);
    tile.clipped += number(valid & (abs(scaled) > splat_f32(Borders::kLargest)));
  }

  template <Format F>
  NANSCOPE_LANE void scan(const Args& args, std::int64_t row, std::int64_t first, std::int64_t last, Health& tile,
                          Spread& lanes) {
    using Borders = HealthBorders<F>;
    for (std::int64_t column = first; column < last; column += kLanes) {
      const U32 code = load_code(args.x, row, column);
      if constexpr (Borders::kFloat) {
        if (!args.source.given() && last - column >= kLanes && !any(Borders::special(code))) {
          add(lanes, from_bits(Borders::decode_ordinary(code)));
          continue;
        }
      }
      const Mask valid = lanes_below(last - column);
      const U32 value = decode_bits<F>(code);
      add_special<Borders>(lanes, tile, value, valid, row * args.x.columns + column);
      if (args.source.given()) add_losses<Borders>(args, tile, value, valid, row, column);
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / tiles_per_row(args);
    const std::int64_t first = warp % tiles_per_row(args) * kTileChannels;
    const std::int64_t last = first + kTileChannels < args.x.columns ? first + kTileChannels : args.x.columns;
    Health tile;
    Spread lanes{splat_f64(-0.0), splat_f64(-0.0), splat_f32(HUGE_VALF), splat_f32(-HUGE_VALF)};
    with_format(args.x.format, [&](auto format) NANSCOPE_INLINE_LAMBDA {
      scan<decltype(format)::value>(args, row, first, last, tile, lanes);
    });
    tile.count = static_cast<std::uint64_t>(last - first);
    tile.sum = sum(lanes.sum) + 0.0;  // + 0.0: zero is reported as +0, so that merging has no order
    tile.sum_sq = sum(lanes.sum_sq) + 0.0;
    tile.min = min_ignore_across(lanes.min) + 0.0F;
    tile.max = max_ignore_across(lanes.max) + 0.0F;
    const float low = -tile.min;
    tile.absmax = tile.finite() == 0 ? 0.0F : low > tile.max ? low : tile.max;
    store_uniform(args.tiles + warp, tile);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
