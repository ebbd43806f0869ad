#include "core/blocks/block_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/blocks/block_parts.h"
#include "core/numbers/decode_span.h"

namespace nanscope {
namespace {

float extreme_of(const BlockFormat& f, const BlockPart& part) {
  const std::uint32_t largest = part.largest_magnitude();
  if (f.rule != ScaleRule::signed_extreme) return std::bit_cast<float>(largest);
  return part.first_of_magnitude(largest);
}

/// Squared error of a block's codes, in f64: 16 lanes, halves added to halves, as the loops have it.
double squared_error(const BlockFormat& f, const BlockPart& part, const std::uint8_t* codes, std::int64_t stride,
                     std::uint32_t scale, float second) {
  const float alone = block_scale_value(f, scale);
  const std::span<const float, 256> values = code_values(f.element);
  std::array<double, 16> lanes{};
  for (std::int64_t row = 0; row < part.rows; ++row) {
    for (std::int64_t i = 0; i < part.columns; ++i) {
      const float read = values[codes[row * stride + i]] * alone * second / f.second_full;
      const float off = read - part.values[row * part.stride + i];
      lanes[static_cast<std::size_t>(i % 16)] += static_cast<double>(off) * static_cast<double>(off);
    }
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace

BlockScale encode_part(const BlockFormat& f, const BlockPart& part, float second, const ElementRounding& rounding,
                       std::uint8_t* codes, std::int64_t stride) {
  const float extreme = extreme_of(f, part);
  const BlockScale scale = block_scale(f, extreme, second, rounding.nan_code);
  encode_elements(f, part, scale, rounding, std::isfinite(extreme), codes, stride);
  if (!f.four_over_six || !std::isfinite(extreme)) return scale;
  std::vector<std::uint8_t> other(static_cast<std::size_t>(part.rows * part.columns));
  const BlockScale wider = block_scale(f, extreme, second, rounding.nan_code, 1.5F);
  encode_elements(f, part, wider, rounding, true, other.data(), part.columns);
  const double with_6 = squared_error(f, part, codes, stride, scale.code, second);
  const double with_4 = squared_error(f, part, other.data(), part.columns, wider.code, second);
  if (!(with_4 < with_6)) return scale;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    std::copy_n(other.data() + row * part.columns, part.columns, codes + row * stride);
  }
  return wider;
}

void decode_part(const BlockFormat& f, const std::uint8_t* codes, std::int64_t count, std::uint32_t scale, float second,
                 float* out) {
  const std::span<const float, 256> values = code_values(f.element);
  const float alone = block_scale_value(f, scale);
  if (f.second == SecondScale::amax) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = values[codes[i]] * alone * second / f.second_full;
  } else if (f.reading == ScaleReading::ggml && std::isinf(alone)) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = values[codes[i]] * 2 * 0x1p127F;
  } else {
    const float whole = block_whole(f, alone, second);
    for (std::int64_t i = 0; i < count; ++i) out[i] = values[codes[i]] * whole;
    if (std::isfinite(whole) && f.element != Format::e4m3 && f.element != Format::e5m2) return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(out[i])) out[i] = std::bit_cast<float>(kCanonicalNan);
  }
}

float block_amax(std::span<const float> values) {
  const BlockPart all{values.data(), 1, static_cast<std::int64_t>(values.size()), 0, 0};
  return std::bit_cast<float>(all.largest_magnitude());
}

EncodedBlock encode_block(const BlockFormat& format, std::span<const float> values, float second, std::uint32_t seed) {
  EncodedBlock out;
  out.codes.resize(values.size());
  const auto count = static_cast<std::int64_t>(values.size());
  const BlockPart part{values.data(), 1, count, count, 0};
  out.scale = encode_part(format, part, second, ElementRounding(format, seed), out.codes.data(), count);
  return out;
}

float block_value(const BlockFormat& format, std::uint8_t code, std::uint32_t scale_code, float second) {
  float value = 0;
  decode_part(format, &code, 1, scale_code, second, &value);
  return value;
}

}  // namespace nanscope
