#include "core/blocks/block_elements.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/blocks/block_element.h"

/// The loops over elements. Written so that a compiler makes vectors of them with the instructions that every machine
/// has: no branch on data, no table.
namespace nanscope {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// One finite scaled element, by an addition that leaves no room for what is below the code's unit.
template <Ties kTies>
inline std::uint32_t quick_code(float scaled, const ElementRounding& r, float largest) {
  const std::uint32_t bits = bits_of(scaled);
  float magnitude = std::bit_cast<float>(bits & 0x7fffffffU);
  magnitude = magnitude < largest ? magnitude : largest;
  const auto own = static_cast<std::int32_t>(bits_of(magnitude) >> 23);
  const std::int32_t field = own > r.lowest ? own : r.lowest;
  const std::uint32_t anchor = static_cast<std::uint32_t>(field + 23 - r.kept) << 23;
  const float sum = magnitude + std::bit_cast<float>(anchor);  // rounded to even in units of the code
  std::uint32_t n = bits_of(sum) - anchor;
  if constexpr (kTies != Ties::even) {
    const float off = magnitude - (sum - std::bit_cast<float>(anchor));  // exact
    const float half = std::bit_cast<float>(static_cast<std::uint32_t>(field - 1 - r.kept) << 23);
    if constexpr (kTies == Ties::away) n += off == half ? 1U : 0U;
    if constexpr (kTies == Ties::away_sum) n += off >= std::bit_cast<float>(bits_of(half) - 1U) ? 1U : 0U;
    if constexpr (kTies == Ties::down) n -= off == -half ? 1U : 0U;
  }
  const std::uint32_t code = (static_cast<std::uint32_t>(field - r.lowest) << r.kept) + n;
  if (r.codec.exponent_bits == 0) {
    const std::uint32_t negative = 0U - (bits >> 31);
    return (code ^ negative) - negative;
  }
  return code | (bits >> 31) << r.sign_shift;
}

template <Ties kTies, class Scaled>
void quick_row(const float* x, std::int64_t count, const ElementRounding& rounding, Scaled scaled,
               std::uint8_t* codes) {
  const ElementRounding r = rounding;  // that no store may change
  const float largest = std::bit_cast<float>(r.largest_bits);
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(quick_code<kTies>(scaled(x[i]), r, largest));
  }
}

template <class Scaled>
void quick_row(Ties ties, const float* x, std::int64_t count, const ElementRounding& r, Scaled scaled,
               std::uint8_t* codes) {
  if (ties == Ties::away) return quick_row<Ties::away>(x, count, r, scaled, codes);
  if (ties == Ties::away_sum) return quick_row<Ties::away_sum>(x, count, r, scaled, codes);
  if (ties == Ties::down) return quick_row<Ties::down>(x, count, r, scaled, codes);
  quick_row<Ties::even>(x, count, r, scaled, codes);
}

/// q4_0: codes -8..7.
void offset_row(const float* x, std::int64_t count, float factor, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto q = static_cast<std::int32_t>(x[i] * factor + 8.5F);
    const std::int32_t low = q < 15 ? q : 15;
    codes[i] = static_cast<std::uint8_t>((low > 0 ? low : 0) - 8);
  }
}

/// Scaling::bounds: how many middles lie below |x|, or not above where ties go up. Middles are of 3 bits and a scale of
/// at most 4: their product is exact.
void bounds_row(const float* x, std::int64_t count, float whole, std::uint8_t* codes) {
  constexpr std::array kMiddles = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  std::array<float, 7> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = kMiddles[i] * whole;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(x[i]);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffU);
    std::uint32_t code = (bits >> 31) << 3;
    for (const float bound : bounds) code += magnitude > bound ? 1U : 0U;
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

float scaled_by(const BlockScale& scale, float x) { return scale.multiply ? x * scale.factor : x / scale.factor; }

/// Any block: NaN, Inf, a scale of 0, Inf or NaN, stochastic rounding.
void any_row(const BlockFormat& f, const float* x, std::int64_t count, std::int64_t index, const BlockScale& scale,
             const ElementRounding& r, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = scaled_by(scale, x[i]);
    if (f.scaling == Scaling::bounds && !std::isfinite(scaled)) {  // no code is nearest
      codes[i] = 0;
      continue;
    }
    const std::uint32_t draw = block_draw(static_cast<std::uint32_t>(index + i), r.seed);
    const std::uint32_t code = encode_block_element(r.codec, f.ties, bits_of(scaled), draw);
    codes[i] = std::isnan(scaled) ? r.nan_code : static_cast<std::uint8_t>(code);
  }
}

void sign_zeros(const BlockFormat& f, const float* x, std::int64_t count, const BlockScale& scale,
                const ElementRounding& r, std::uint8_t* codes) {
  const auto negative = static_cast<std::uint8_t>(1U << r.sign_shift);
  if (f.zero_sign == ZeroSign::positive) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] = codes[i] == negative ? std::uint8_t{0} : codes[i];
    return;
  }
  const std::uint8_t zero = f.zero_sign == ZeroSign::scaled_negative ? negative : std::uint8_t{0};
  for (std::int64_t i = 0; i < count; ++i) codes[i] = scaled_by(scale, x[i]) == 0 ? zero : codes[i];
}

/// x / 2^k is x * 2^-k where both are normal.
bool is_power_of_two(float value) {
  const std::uint32_t bits = bits_of(value);
  return (bits & 0x807fffffU) == 0 && bits >= 0x00800000U && bits <= 0x7e800000U;
}

}  // namespace

std::uint32_t BlockPart::largest_magnitude() const {
  std::int32_t largest = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x = values + row * stride;
    for (std::int64_t i = 0; i < columns; ++i) {
      const auto magnitude = static_cast<std::int32_t>(bits_of(x[i]) & 0x7fffffffU);
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  return static_cast<std::uint32_t>(largest);
}

float BlockPart::first_of_magnitude(std::uint32_t magnitude) const {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const float value = values[row * stride + i];
      if ((bits_of(value) & 0x7fffffffU) == magnitude) return value;
    }
  }
  return 0;
}

ElementRounding::ElementRounding(const BlockFormat& format, std::uint32_t draws)
    : codec(codec_params(format.element)), seed(draws) {
  const bool integer = codec.exponent_bits == 0;
  kept = integer ? codec.mantissa_bits - 1 : codec.mantissa_bits;
  lowest = integer ? 127 + kept : 128 - codec.bias;
  sign_shift = integer ? 7 : codec.exponent_bits + codec.mantissa_bits;
  largest_bits = bits_of(info(format.element).max_finite);
  nan_code =
      static_cast<std::uint8_t>(format.nan_code >= 0 ? static_cast<std::uint32_t>(format.nan_code) : codec.nan_code);
}

void encode_elements(const BlockFormat& format, const BlockPart& part, const BlockScale& scale,
                     const ElementRounding& rounding, bool finite, std::uint8_t* codes, std::int64_t stride) {
  const bool plain = finite && std::isfinite(scale.factor) && scale.factor != 0 && format.ties != Ties::stochastic;
  const bool as_product = scale.multiply || is_power_of_two(scale.factor);
  const float factor = scale.multiply ? scale.factor : 1.0F / scale.factor;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const float* x = part.values + row * part.stride;
    std::uint8_t* out = codes + row * stride;
    if (scale.filled) {
      std::memset(out, scale.fill, static_cast<std::size_t>(part.columns));
    } else if (!plain) {
      any_row(format, x, part.columns, part.index + row * part.stride, scale, rounding, out);
    } else if (format.ties == Ties::offset) {
      offset_row(x, part.columns, scale.factor, out);
    } else if (format.scaling == Scaling::bounds) {
      bounds_row(x, part.columns, scale.factor, out);
    } else if (as_product) {
      quick_row(
          format.ties, x, part.columns, rounding, [factor](float value) { return value * factor; }, out);
    } else {
      const float divisor = scale.factor;
      quick_row(
          format.ties, x, part.columns, rounding, [divisor](float value) { return value / divisor; }, out);
    }
    if (format.zero_sign != ZeroSign::kept && !scale.filled) sign_zeros(format, x, part.columns, scale, rounding, out);
  }
}

}  // namespace nanscope
