#pragma once
/// Scales of 32 columns at once: a lane has its own column's largest magnitude and gets its own scale.
#include "core/blocks/block_element.h"
#include "core/blocks/block_scale.h"
#include "kernels/check.h"

namespace nanscope::kernels {

/// Whether elements are rounded one by one, under scales that are read as numbers.
constexpr bool rounds_elementwise(const BlockFormat& f) {
  return f.rule != ScaleRule::signed_extreme && f.scaling != Scaling::bounds && !f.four_over_six &&
         f.zero_sign == ZeroSign::kept && f.reading == ScaleReading::plain && f.second != SecondScale::amax;
}

inline constexpr std::string_view kElementwise =
    "a block format that is rounded element by element, under scales that are read as numbers";

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// BlockScale, a lane each.
struct LaneScales {
  U32 code = splat_u32(0);
  F32 factor = splat_f32(1.0F);
  Mask multiply = lanes_below(0);
  Mask filled = lanes_below(0);
  U32 fill = splat_u32(0);
};

NANSCOPE_FN std::uint8_t nan_code_of(const BlockFormat& f) {
  if (f.nan_code >= 0) return static_cast<std::uint8_t>(f.nan_code);
  std::uint8_t code = 0;
  with_format(f.element, [&](auto format) NANSCOPE_INLINE_LAMBDA {
    constexpr CodecParams p = kCodecParams<format()>;
    code = static_cast<std::uint8_t>(p.nan_code);
  });
  return code;
}

/// A call: its branches are long, and once a block is seldom.
NANSCOPE_CALLED LaneScales column_scales(const BlockFormat& f, float second, const F32& amax) {
  LaneScales all;
  const std::uint8_t nan = nan_code_of(f);
#if defined(__CUDACC__)
  const BlockScale own = block_scale(f, amax, second, nan);
  all.code = own.code;
  all.factor = own.factor;
  all.multiply = own.multiply;
  all.filled = own.filled;
  all.fill = own.fill;
#else
  for (int lane = 0; lane < kLanes; ++lane) {
    const BlockScale own = block_scale(f, broadcast(amax, lane), second, nan);
    const Mask here = lane_id() == splat_u32(static_cast<std::uint32_t>(lane));
    all.code = select(here, splat_u32(own.code), all.code);
    all.factor = select(here, splat_f32(own.factor), all.factor);
    if (own.multiply) all.multiply = all.multiply | here;
    if (own.filled) all.filled = all.filled | here;
    all.fill = select(here, splat_u32(own.fill), all.fill);
  }
#endif
  return all;
}

/// Codes of elements whose indices, for draws, are `index`.
NANSCOPE_CALLED U32 element_codes(const BlockFormat& f, const LaneScales& scales, const F32& x, const U32& index,
                                  std::uint32_t seed) {
  const F32 scaled = select(scales.multiply, x * scales.factor, x / scales.factor);
  U32 code = splat_u32(0);
  if (f.ties == Ties::even) {
    code = encode_lanes(f.element, scaled, Overflow::saturate);
  } else {
    with_format(f.element, [&](auto format) NANSCOPE_INLINE_LAMBDA {
      constexpr CodecParams p = kCodecParams<format()>;
      code = encode_block_element(p, f.ties, raw_bits(scaled), block_draw(index, seed));
    });
  }
  if (f.nan_code >= 0) code = select(is_nan(scaled), splat_u32(static_cast<std::uint32_t>(f.nan_code)), code);
  return select(scales.filled, scales.fill, code);
}

/// What codes' values are multiplied by.
NANSCOPE_FN F32 whole_scale(const BlockFormat& f, const U32& scale, float second) {
  const F32 value = decode_lanes(f.scale, scale);
  if (f.second == SecondScale::multiplier) return value * splat_f32(second);
  if (f.second == SecondScale::divisor) return value / splat_f32(second);
  return value;
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
