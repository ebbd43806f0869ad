#pragma once
#include "core/blocks/block_loops.h"
#include "core/blocks/loops/lanes.h"

/// Scales of blocks from their largest magnitudes, 16 at a time.
namespace nanscope::NANSCOPE_ISA {

NANSCOPE_LOOP I unusual(const F& m) { return as<I>(as<U>(m) & 0x7fffffffU) >= 0x7f800000; }
/// 0, Inf or NaN.
NANSCOPE_LOOP I no_factor(const F& factor) { return as<I>((as<U>(factor) & 0x7fffffffU) - 1U >= splat(0x7f7fffffU)); }

static bool power_scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, BlockScales to) {
  const BlockFormat& f = plan.format;
  const bool up = f.rule == ScaleRule::rceil;
  const std::int32_t top = up ? 0 : static_cast<std::int32_t>(bits_of(f.largest) >> 23) - 127;
  const std::uint32_t add = f.rule == ScaleRule::even    ? 1U << (22 - f.even_bits)
                            : f.rule == ScaleRule::floor ? 0U
                                                         : 0x7fffffU;
  // Beside powers of two a rounded logarithm is on the other side.
  const std::uint32_t slack = f.logarithm == Logarithm::exact ? 0 : 64;
  const float at_0 = f.divisor_at_code_0 > 0 ? 1.0F / f.divisor_at_code_0 : 0x1p127F;
  const bool wraps = f.reading == ScaleReading::ggml;
  I all = {};
  for (std::int64_t block = 0; block < blocks; block += kChunk) {
    const F given = load<F>(extremes + block);
    const F m = pick(given < splat(f.smallest_amax), splat(f.smallest_amax), given);
    const U bits = as<U>(!up ? m : f.largest_reciprocal ? m * (1.0F / f.largest) : m / f.largest);
    const U fraction = bits & 0x7fffffU;
    const I code = as<I>((bits + add) >> 23) - top;
    const I above = pick(code > 0, code, I{});
    const U capped = as<U>(pick(above < 254, above, splat(254)));
    const U beside = up ? fraction - 1U : 0x7fffffU - fraction;
    I alone = unusual(m) | as<I>(beside < splat(slack)) | as<I>(bits - 1U < splat(0x7fffffU));
    if (wraps) alone |= (code < 0) & as<I>(bits != 0);
    all |= alone;
    const U inverse = pick(as<I>(capped == 254U), splat(0x00400000U), (254U - capped) << 23);
    store(to.codes + block, capped);
    store(to.factors + block, pick(as<I>(capped == 0U), splat(at_0), as<F>(inverse)));
    store(to.alone + block, alone);
  }
  return any(all);
}

NANSCOPE_LOOP F unrounded(const BlockFormat& f, const F& m, float second, float expansion) {
  if (f.second == SecondScale::none) return m / f.largest;
  if (f.second == SecondScale::amax) return m / f.largest * (f.second_full / second) * expansion;
  if (f.second_use == SecondUse::divide_product) return m / (f.largest * second);
  return f.second_use == SecondUse::multiply ? m / f.largest * second : m / f.largest / second;
}

struct SmallScales {
  U codes;
  F values;
};

NANSCOPE_LOOP SmallScales round_e4m3(const F& value) {
  const F clipped = least(value, splat(448.0F));
  const I field = most(fields(clipped), splat(121));
  const U anchor = as<U>(field + 20) << 23;
  const F sum = clipped + as<F>(anchor);
  return {(as<U>(field - 121) << 3) + as<U>(sum) - anchor, sum - as<F>(anchor)};
}

NANSCOPE_LOOP SmallScales round_e4m3_ggml(const F& value) {
  const U bits = as<U>(value);
  const I units = __builtin_convertvector(least(value * 512.0F + 0.5F, splat(7.5F)), I);
  const U normal = ((bits + (1U << 19)) >> 20) - (120U << 3);
  const I beyond = (fields(value) >= 135) | as<I>(normal >= splat(120U));
  const U code = pick(fields(value) <= 120, as<U>(units), pick(beyond, splat(0x7eU), normal));
  const F small = __builtin_convertvector(as<I>(code), F) * 0x1p-9F;
  return {code, pick(as<I>(code < splat(8U)), small, as<F>((code + (120U << 3)) << 20))};
}

NANSCOPE_LOOP F factors_of(const BlockFormat& f, const F& scale, float second) {
  if (f.scaling == Scaling::reciprocal_second) return (1.0F / second) / scale;
  F whole = scale;
  if (f.second == SecondScale::multiplier) whole = scale * second;
  if (f.second == SecondScale::divisor) whole = scale / second;
  if (f.second == SecondScale::amax) whole = 1.0F / (f.second_full / second) * scale;
  return f.scaling == Scaling::reciprocal ? 1.0F / whole : whole;
}

template <bool kGgml>
static bool small_scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, float expansion,
                         BlockScales to) {
  const BlockFormat f = plan.format;  // that no store may change
  const SmallScales instead = round_e4m3(splat(f.scale_of_code_0));
  I all = {};
  for (std::int64_t block = 0; block < blocks; block += kChunk) {
    const F m = load<F>(extremes + block);
    F value = unrounded(f, m, plan.second, expansion);
    if (f.scale_of_zero > 0) value = pick(value == 0.0F, splat(f.scale_of_zero), value);
    if (f.smallest_scale > 0) value = pick(value < f.smallest_scale, splat(f.smallest_scale), value);
    SmallScales scale = kGgml ? round_e4m3_ggml(value) : round_e4m3(value);
    if (f.scale_of_code_0 > 0) {
      const I zero = as<I>(scale.codes == 0U);
      scale = {pick(zero, instead.codes, scale.codes), pick(zero, instead.values, scale.values)};
    }
    const F factor = factors_of(f, scale.values, plan.second);
    store(to.codes + block, scale.codes);
    store(to.factors + block, factor);
    const I alone = unusual(m) | no_factor(factor) | (scale.values == 0.0F);
    all |= alone;
    store(to.alone + block, alone);
  }
  return any(all);
}

NANSCOPE_LOOP U to_f16(const F& value) {
  const U magnitude = as<U>(value) & 0x7fffffffU;
  const I field = most(as<I>(magnitude >> 23), splat(113));
  const U anchor = as<U>(field + 13) << 23;
  const F sum = as<F>(magnitude) + as<F>(anchor);
  const U code = (as<U>(field - 113) << 10) + as<U>(sum) - anchor;
  return pick(as<I>(code > splat(0x7bffU)), splat(0x7c00U), code) | as<U>(value) >> 31 << 15;
}

/// f32, and f16 with codes made by the f32.
static bool wide_scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, BlockScales to) {
  const BlockFormat& f = plan.format;
  const bool inverse_first = f.rule == ScaleRule::max_over_amax;
  I all = {};
  for (std::int64_t block = 0; block < blocks; block += kChunk) {
    const F m = load<F>(extremes + block);
    const F inverse = 1.0F / m * f.largest;
    const F scale = inverse_first ? 1.0F / inverse : m / f.largest;
    const F reciprocal = inverse_first ? inverse : 1.0F / scale;
    const F factor = f.scaling == Scaling::divide ? scale : reciprocal;
    store(to.codes + block, f.scale == Format::f16 ? to_f16(scale) : as<U>(scale));
    store(to.factors + block, factor);
    const I alone = unusual(m) | no_factor(factor) | no_factor(scale);
    all |= alone;
    store(to.alone + block, alone);
  }
  return any(all);
}

static bool scales(const BlockPlan& plan, const float* extremes, std::int64_t blocks, float expansion, BlockScales to) {
  if (plan.format.scale == Format::e8m0) return power_scales(plan, extremes, blocks, to);
  if (plan.format.scale != Format::e4m3) return wide_scales(plan, extremes, blocks, to);
  if (plan.format.scale_cast == ScaleCast::ggml) return small_scales<true>(plan, extremes, blocks, expansion, to);
  return small_scales<false>(plan, extremes, blocks, expansion, to);
}

}  // namespace nanscope::NANSCOPE_ISA
