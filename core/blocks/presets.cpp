#include "core/blocks/presets.h"

#include <fmt/format.h>

#include <array>

namespace nanscope {
namespace {

constexpr std::string_view kTorchaoFloor =
    "scale byte 0 decodes to half of what codes were made with; a NaN block keeps 0 where it had numbers; Inf is 6 x "
    "2^k "
    "in its block";
constexpr std::string_view kTorchaoRceil =
    "scales are rounded up, by a log2 in f32; under scale byte 0 codes are made without a scale; Inf is clipped";
constexpr std::string_view kMicroxcaling = "ties go away from zero; log2 is taken in f32, so 44 ulp below 2^k are 2^k";
constexpr std::string_view kCompressedTensors = "m is rounded half up to the element's mantissa before it is floored";
constexpr std::string_view kCompressedTensors8 =
    "m is rounded half up to one bit of mantissa, E2M1's, before it is floored: 448 has the scale 2";

constexpr Packing packing_of(Format element) {
  if (element == Format::e2m1) return Packing::low_first;
  return element == Format::e2m3 || element == Format::e3m2 ? Packing::six_bit : Packing::bytes;
}

constexpr BlockFormat mx(Format element, float largest) {
  BlockFormat f;
  f.element = element;
  f.largest = largest;
  f.packing = packing_of(element);
  return f;
}

constexpr std::int8_t mantissa_bits(Format element) {
  return element == Format::e4m3 || element == Format::e2m3 ? 3 : element == Format::e2m1 ? 1 : 2;
}

constexpr BlockFormat with_rule(BlockFormat f, ScaleRule rule) {
  f.rule = rule;
  f.even_bits = mantissa_bits(f.element);
  return f;
}

/// cuBLAS, and cvt.rp.satfinite.ue8m0x2: an infinite scale is the largest.
constexpr BlockFormat rounded_up(BlockFormat f) {
  f = with_rule(f, ScaleRule::rceil);
  f.inf = BadBlock::arithmetic;
  return f;
}

constexpr BlockFormat nvfp4() {
  BlockFormat f = mx(Format::e2m1, 6);
  f.block = {1, 16};
  f.scale = Format::e4m3;
  f.second = SecondScale::multiplier;
  f.second_full = 6 * 448;
  f.rule = ScaleRule::amax_over_max;
  f.inf = BadBlock::arithmetic;
  return f;
}

constexpr BlockFormat four_over_six() {
  BlockFormat f = nvfp4();
  f.second = SecondScale::amax;
  f.second_full = 6 * 256;
  f.second_use = SecondUse::multiply;
  f.scaling = Scaling::reciprocal;
  f.layout = ScaleLayout::swizzled_128x4;
  f.four_over_six = true;
  f.zero_sign = ZeroSign::scaled_positive;
  return f;
}

constexpr BlockFormat torchao(BlockFormat f, ScaleRule rule) {
  f = with_rule(f, rule);
  f.inf = BadBlock::arithmetic;
  if (rule == ScaleRule::rceil) {
    f.logarithm = Logarithm::rounded;
    f.divisor_at_code_0 = 1;
    return f;
  }
  f.nan = BadBlock::divide_by_inf;
  f.divisor_at_code_0 = 0x1p-126F;
  return f;
}

constexpr BlockFormat nvfp4_torchao() {
  BlockFormat f = nvfp4();
  f.smallest_scale = 0x1p-6F;
  f.scaling = Scaling::reciprocal_second;
  return f;
}

constexpr BlockFormat microxcaling(Format element, float largest) {
  BlockFormat f = mx(element, largest);
  f.logarithm = Logarithm::rounded;
  f.ties = Ties::away_sum;
  f.zero_sign = ZeroSign::scaled_positive;
  return f;
}

constexpr BlockFormat compressed_tensors(BlockFormat f, std::int8_t even_bits) {
  f = with_rule(f, ScaleRule::even);
  f.even_bits = even_bits;
  if (f.element == Format::e2m1) f.zero_sign = ZeroSign::scaled_positive;
  if (f.element != Format::e4m3) f.nan_code = f.element == Format::e2m1 ? 0 : 0x20;
  f.nan = BadBlock::as_zero;
  f.inf = BadBlock::one_for_inf;
  return f;
}

constexpr BlockFormat nvfp4_ct() {
  BlockFormat f = nvfp4();
  f.second = SecondScale::divisor;
  f.second_use = SecondUse::multiply;
  f.scale_of_code_0 = 0.125F;
  f.nan_code = 0;
  f.zero_sign = ZeroSign::scaled_positive;
  return f;
}

constexpr BlockFormat mxfp8_modelopt() {
  BlockFormat f = with_rule(mx(Format::e4m3, 448), ScaleRule::rceil);
  f.logarithm = Logarithm::rounded;
  f.nan = BadBlock::as_zero;
  f.inf = BadBlock::arithmetic;
  return f;
}

constexpr BlockFormat mxfp4_modelopt() {
  BlockFormat f = with_rule(mx(Format::e2m1, 6), ScaleRule::rceil);
  f.logarithm = Logarithm::rounded;
  f.ties = Ties::down;
  f.zero_sign = ZeroSign::scaled_negative;
  f.nan = BadBlock::laundered;
  f.inf = BadBlock::laundered;
  f.laundered_code = 8;
  return f;
}

constexpr BlockFormat nvfp4_modelopt() {
  BlockFormat f = nvfp4();
  f.second_use = SecondUse::divide_product;
  f.smallest_scale = 0x1p-9F;
  f.zero_sign = ZeroSign::scaled_positive;
  f.scale_of_zero = 1;
  return f;
}

constexpr BlockFormat fp8_block(BlockShape block) {
  BlockFormat f = mx(Format::e4m3, 448);
  f.block = block;
  f.scale = Format::f32;
  f.rule = ScaleRule::amax_over_max;
  f.divides_by_zero = true;
  f.inf = BadBlock::arithmetic;
  return f;
}

constexpr BlockFormat fp8_transformers() {
  BlockFormat f = fp8_block({128, 128});
  f.rule = ScaleRule::max_over_amax;
  f.scaling = Scaling::reciprocal;
  f.scale_of_zero = 1;
  f.divides_by_zero = false;
  f.nan = BadBlock::unit_scale;
  return f;
}

constexpr BlockFormat fp8_ue8m0() {
  BlockFormat f = fp8_block({1, 128});
  f.scale = Format::e8m0;
  f.rule = ScaleRule::rceil;
  f.smallest_amax = 1e-4F;
  return f;
}

constexpr BlockFormat gguf(BlockFormat f, Packing packing) {
  f.packing = packing;
  f.layout = ScaleLayout::interleaved;
  f.reading = ScaleReading::ggml;
  f.zero_sign = ZeroSign::positive;
  return f;
}

constexpr BlockFormat q8_0() {
  BlockFormat f = gguf(mx(Format::int8, 127), Packing::bytes);
  f.scale = Format::f16;
  f.rule = ScaleRule::amax_over_max;
  f.codes_from_unrounded = true;
  f.scaling = Scaling::reciprocal;
  f.inf = BadBlock::arithmetic;
  f.ties = Ties::away;
  return f;
}

constexpr BlockFormat q4_0() {
  BlockFormat f = gguf(mx(Format::int8, -8), Packing::halves);
  f.scale = Format::f16;
  f.rule = ScaleRule::signed_extreme;
  f.codes_from_unrounded = true;
  f.scaling = Scaling::reciprocal;
  f.inf = BadBlock::arithmetic;
  f.ties = Ties::offset;
  return f;
}

constexpr BlockFormat mxfp4_gguf() {
  BlockFormat f = gguf(mx(Format::e2m1, 6), Packing::halves);
  f.logarithm = Logarithm::rounded;
  f.ties = Ties::down;
  f.nan = BadBlock::laundered;
  f.inf = BadBlock::laundered;
  return f;
}

constexpr BlockFormat nvfp4_gguf() {
  BlockFormat f = gguf(mx(Format::e2m1, 6), Packing::halves);
  f.block = {1, 16};
  f.scale = Format::e4m3;
  f.scale_cast = ScaleCast::ggml;
  f.rule = ScaleRule::amax_over_max;
  f.scaling = Scaling::bounds;
  f.ties = Ties::down;
  f.interleave = 4;
  f.nan = BadBlock::arithmetic;
  f.inf = BadBlock::arithmetic;
  return f;
}

constexpr auto kPresets = std::to_array<BlockPreset>({
#define NANSCOPE_BLOCK(name, producer, deviation, ...) {name, producer, deviation, __VA_ARGS__},
#include "core/blocks/presets.def"
#undef NANSCOPE_BLOCK
});

}  // namespace

std::span<const BlockPreset> block_presets() { return kPresets; }

const BlockPreset* find_block_preset(std::string_view wanted) {
  for (const BlockPreset& preset : kPresets) {
    if (preset.name == wanted) return &preset;
  }
  return nullptr;
}

std::string block_summary(const BlockFormat& format) {
  return fmt::format("{} x {} {} under {}", format.block.rows, format.block.columns, name(format.element),
                     name(format.scale));
}

std::string_view name(ScaleRule rule) {
  constexpr std::array<std::string_view, 7> kNames = {
      "floor", "ceil", "rceil", "even", "amax / max", "1 / (max / amax)", "extreme / -8"};
  return kNames[static_cast<std::size_t>(rule)];
}

std::string_view name(Ties ties) {
  constexpr std::array<std::string_view, 6> kNames = {"to even", "away from zero", "away from zero", "to zero",
                                                      "up",      "stochastic"};
  return kNames[static_cast<std::size_t>(ties)];
}

}  // namespace nanscope
