#pragma once
#include <cstdint>

#include "core/numbers/format.h"

/// Block formats as data: elements that share a scale, and everything in which their producers differ.
/// The named ones are in presets.def; docs/block-formats.md tells who does what.
namespace nanscope {

/// Elements under one scale. Blocks at the right and the lower edge of a matrix may be ragged.
struct BlockShape {
  std::int32_t rows = 1;
  std::int32_t columns = 32;
};

/// One more scale for the whole tensor, f32.
enum class SecondScale : std::uint8_t {
  none,
  multiplier,  ///< real = code value x scale x second (ModelOpt, torchao, TensorRT-LLM)
  divisor,     ///< real = code value x scale / second (compressed-tensors)
  amax,  ///< the tensor's largest magnitude itself: real = code value x scale x second / second_full (fouroversix)
};

/// How the scale follows from the block's largest magnitude m. E is the exponent of the largest power of two of the
/// element format (2 for e2m1, 8 for e4m3), M its largest value (6, 448).
enum class ScaleRule : std::uint8_t {
  floor,          ///< 2^(floor(log2 m) - E): OCP MX 1.0, section 6.3. What is beyond M x 2^e clips
  ceil,           ///< 2^(ceil(log2 m) - E)
  rceil,          ///< 2^ceil(log2(m / M)): the smallest power of two under which nothing clips
  even,           ///< m rounded to `even_bits` bits of mantissa, half up, then floor
  amax_over_max,  ///< m / M, rounded to the scale's format
  max_over_amax,  ///< M / m is what elements are multiplied by; its reciprocal is stored
  signed_extreme  ///< the value of largest magnitude / M, with its sign: M is negative
};

/// How floor and ceil of a logarithm are taken.
enum class Logarithm : std::uint8_t {
  exact,
  rounded,  ///< of log2 rounded to f32, as torch and numpy compute it: within 44 ulp of 2^k it is k already
};

enum class Ties : std::uint8_t {
  even,
  away,        ///< from zero
  away_sum,    ///< floor(x + 0.5), the sum rounded to f32: the f32 below one half goes up, too (microxcaling)
  down,        ///< to zero
  offset,      ///< floor(x + 8.5) - 8, the sum rounded to f32: ties up (q4_0)
  stochastic,  ///< up with the probability of the remainder, from a counter
};

/// What elements are divided by; each form rounds differently. second stands for 1 where there is none.
enum class Scaling : std::uint8_t {
  divide,             ///< x / whole
  reciprocal,         ///< x * (1 / whole)
  reciprocal_second,  ///< x * ((1 / second) / scale)
  bounds,             ///< not at all: |x| is compared with the middles between codes times whole, exactly (e2m1)
};

/// How amax_over_max and rceil bring the second scale in.
enum class SecondUse : std::uint8_t {
  divide_after,    ///< m / M / second
  divide_product,  ///< m / (M * second)
  multiply,        ///< m / M * second
};

/// What a block becomes that holds a NaN, or an Inf and no NaN.
enum class BadBlock : std::uint8_t {
  scale_nan,      ///< the scale is NaN, and with it everything that is read of the block
  divide_by_inf,  ///< the scale is NaN, but codes were made with Inf: 0, NaN where NaN or Inf was
  laundered,      ///< scale code 0, every code `laundered_code`: nothing shows that something was wrong
  unit_scale,     ///< the scale is 1
  as_zero,        ///< the scale of a block of zeros
  one_for_inf,    ///< the scale reads 1, but codes were made with Inf
  arithmetic,     ///< whatever the rule makes of an infinite m
};

enum class ZeroSign : std::uint8_t {
  kept,
  positive,         ///< what is stored as 0 is +0
  scaled_positive,  ///< an element that is 0 when it is scaled is +0; one that is rounded to 0 keeps its sign
  scaled_negative,  ///< the same, -0 (ModelOpt's MXFP4)
};

enum class Packing : std::uint8_t {
  bytes,       ///< one code a byte
  low_first,   ///< two codes a byte, the first in the low nibble
  high_first,  ///< the first in the high nibble
  halves,      ///< byte i of a block: element i low, element i + half a block high (gguf)
  six_bit,     ///< four codes in three bytes, little-endian
};

enum class ScaleLayout : std::uint8_t {
  linear,          ///< a matrix of scales, row-major
  swizzled_128x4,  ///< tiles of 128 x 4 as tensor cores read them, rows and columns filled up with 0
  interleaved,     ///< scales stand before the codes of their blocks (gguf)
};

/// What a scale's code is worth.
enum class ScaleReading : std::uint8_t {
  plain,
  ggml,  ///< e8m0 has no NaN, 255 is 2^128, and exponents below it wrap; e4m3 has no sign and no NaN, 0x7f is 0
};

/// How e4m3 scales are rounded.
enum class ScaleCast : std::uint8_t {
  nearest_even,
  ggml,  ///< half up; from 256 on 448; subnormals no higher than 7 x 2^-9
};

/// One block format. Plain data that kernels take by value.
struct BlockFormat {
  Format element = Format::e2m1;
  BlockShape block;
  Format scale = Format::e8m0;  ///< e8m0, e4m3, f32, f16 or bf16
  SecondScale second = SecondScale::none;
  float second_full = 0;  ///< what the second scale takes the tensor's largest magnitude to, such as 6 x 448

  ScaleRule rule = ScaleRule::floor;
  float largest = 6;                ///< M
  std::int8_t even_bits = 1;        ///< of ScaleRule::even
  bool largest_reciprocal = false;  ///< m * (1 / M) for m / M
  Logarithm logarithm = Logarithm::exact;
  SecondUse second_use = SecondUse::divide_after;
  ScaleCast scale_cast = ScaleCast::nearest_even;
  float smallest_amax = 0;    ///< m is not taken for less
  float smallest_scale = 0;   ///< nor the scale before it is rounded
  float scale_of_zero = 0;    ///< stored where the scale is 0 before it is rounded; of max_over_amax, where m is 0
  float scale_of_code_0 = 0;  ///< stored where it is rounded to 0

  Scaling scaling = Scaling::divide;
  bool codes_from_unrounded = false;  ///< codes are made with the scale before it was rounded
  float divisor_at_code_0 = 0;        ///< what codes are made with under scale code 0, where that is not its value
  bool divides_by_zero = false;       ///< 0 / 0 under a scale of 0, for codes of 0
  Ties ties = Ties::even;
  ZeroSign zero_sign = ZeroSign::kept;

  BadBlock nan = BadBlock::scale_nan;
  BadBlock inf = BadBlock::scale_nan;
  std::uint8_t laundered_code = 0;
  std::int16_t nan_code = -1;  ///< what a NaN among the elements becomes; -1: as the codec has it

  Packing packing = Packing::bytes;
  ScaleLayout layout = ScaleLayout::linear;
  std::int32_t interleave = 1;  ///< scales that stand together before their blocks
  ScaleReading reading = ScaleReading::plain;
  bool four_over_six = false;  ///< of the scales for 6 and for 4 as the largest code, the one with the smaller error
};

}  // namespace nanscope
