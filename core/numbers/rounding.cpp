#include "core/numbers/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/numbers/anatomy.h"
#include "core/numbers/codec.h"

namespace nanscope {
namespace {

std::uint32_t cast(Format format, double value, std::uint32_t source_bits, Overflow overflow) {
  if (format == Format::i32 && std::isfinite(value)) {
    const double clamped = std::clamp(std::nearbyint(value), -2147483648.0, 2147483647.0);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(clamped));
  }
  return encode_bits(codec_params(format), source_bits, overflow);
}

/// The largest magnitude that the format holds, exact (the table's i32 limit is rounded to f32).
double largest_finite(Format format) { return exact_value(format, info(format).max_finite_code); }

/// int8's -128 decodes, but no cast makes it: it is no bucket.
std::optional<std::uint32_t> castable(Format format, std::optional<std::uint32_t> code) {
  if (format == Format::int8 && code == 0x80u) return std::nullopt;
  return code;
}

/// Sets lower and upper, which enclose the input; either is absent beyond the ends of the format.
void enclose(Rounding& r) {
  if (std::isnan(r.value)) return;
  std::uint32_t near = r.code;
  if (!std::isfinite(r.stored)) {  // overflowed: start from the largest finite value of the sign
    near = encode_bits(codec_params(r.format), r.source_bits, Overflow::saturate);
  }
  const double anchor = exact_value(r.format, near);
  if (anchor <= r.value) r.lower = near;
  if (anchor >= r.value) r.upper = near;
  if (!r.lower) r.lower = castable(r.format, next_down(r.format, near));
  if (!r.upper) r.upper = castable(r.format, next_up(r.format, near));
  if (!r.lower || !r.upper || *r.lower == *r.upper) return;
  const double low = exact_value(r.format, *r.lower);
  const double high = exact_value(r.format, *r.upper);
  if (std::isfinite(low) && std::isfinite(high)) r.midpoint = low + (high - low) / 2;
}

Rounding finish(Rounding r) {
  const bool direct = r.format == Format::f32 || r.format == Format::i32;
  r.source = direct ? r.value : static_cast<double>(std::bit_cast<float>(r.source_bits));
  r.code = cast(r.format, r.value, r.source_bits, r.overflow);
  r.stored = exact_value(r.format, r.code);
  if (!info(r.format).has_sign && std::signbit(r.value) && r.value != 0 && !std::isnan(r.value)) {
    r.sign_dropped = true;
  }
  const bool finite_in = std::isfinite(r.value);
  const bool finite_out = std::isfinite(r.stored);
  r.exact = r.stored == r.value;
  r.clipped = finite_out && std::fabs(r.value) > largest_finite(r.format) && !r.exact;
  r.overflowed = finite_in && !finite_out;
  r.flushed = finite_in && r.value != 0 && r.stored == 0;
  r.laundered = std::isnan(r.value) && finite_out;
  if (!r.sign_dropped) enclose(r);
  r.tie = r.midpoint && *r.midpoint == r.source;
  if (finite_in && finite_out) {
    r.absolute_loss = std::fabs(r.stored - r.value);
    if (r.value != 0) r.relative_loss = *r.absolute_loss / std::fabs(r.value);
  }
  return r;
}

}  // namespace

float f32_of(double value) {
  const double largest = std::numeric_limits<float>::max();
  const double overflow_from = largest + 0x1p103;  // half a gap beyond, a tie that goes to Inf
  if (std::isfinite(value) && std::fabs(value) >= overflow_from) {
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(std::copysign(1.0, value)));
  }
  if (std::isfinite(value) && std::fabs(value) > largest) return static_cast<float>(std::copysign(largest, value));
  return static_cast<float>(value);
}

Rounding round_value(Format format, double value, Overflow overflow) {
  Rounding r{};
  r.format = format;
  r.overflow = overflow;
  r.value = value;
  r.source_bits = std::bit_cast<std::uint32_t>(f32_of(value));
  return finish(r);
}

Rounding round_bits(Format format, std::uint32_t f32_bits, Overflow overflow) {
  Rounding r{};
  r.format = format;
  r.overflow = overflow;
  r.value = static_cast<double>(std::bit_cast<float>(f32_bits));
  r.source_bits = f32_bits;
  return finish(r);
}

}  // namespace nanscope
