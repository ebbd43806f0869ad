#include "tests/unit/core/numbers/definition.h"

#include <bit>
#include <cmath>
#include <limits>

namespace nanscope::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool is_integer(const FormatInfo& f) { return f.exponent_bits == 0; }

/// RNE of |value| / quantum, where quantum is a power of two.
double round_to(double value, double quantum) { return std::nearbyint(value / quantum) * quantum; }

std::uint32_t integer_code(const FormatInfo& f, double value) {
  if (std::isnan(value)) return 0;
  const double largest = f.max_finite_code;
  const double rounded = std::nearbyint(value);
  const auto whole = static_cast<std::int64_t>(
      std::isinf(value) || std::fabs(rounded) > largest ? std::copysign(largest, value) : rounded);
  const std::uint64_t mask = (std::uint64_t{1} << f.bits) - 1;
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(whole) & mask);
}

std::uint32_t e8m0_code(double value, Overflow overflow) {
  if (std::isnan(value)) return 0xff;
  const double magnitude = std::fabs(value);
  if (magnitude <= std::ldexp(1.0, -127)) return 0;
  const std::uint32_t beyond = overflow == Overflow::saturate ? 0xfe : 0xff;
  if (std::isinf(magnitude)) return beyond;
  const int exponent = std::ilogb(magnitude);
  const bool up = magnitude >= 1.5 * std::ldexp(1.0, exponent);
  const int code = exponent + 127 + (up ? 1 : 0);
  return code > 0xfe ? beyond : static_cast<std::uint32_t>(code);
}

}  // namespace

double define_decode(const FormatInfo& f, std::uint32_t code) {
  if (is_integer(f)) {
    const auto wide = static_cast<std::int64_t>(code);
    const std::int64_t half = std::int64_t{1} << (f.bits - 1);
    return static_cast<double>(wide >= half ? wide - 2 * half : wide);
  }
  if (f.specials == Specials::e8m0) return code == 0xff ? kNan : std::ldexp(1.0, static_cast<int>(code) - 127);
  const int fraction = static_cast<int>(code & ((1u << f.mantissa_bits) - 1));
  const int field = static_cast<int>((code >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1));
  const bool negative = (code >> (f.bits - 1)) & 1u;
  const double sign = negative ? -1.0 : 1.0;
  const bool all_ones_exponent = field == (1 << f.exponent_bits) - 1;
  const bool all_ones_fraction = fraction == (1 << f.mantissa_bits) - 1;
  if (f.specials == Specials::ieee && all_ones_exponent) return fraction == 0 ? sign * kInf : kNan;
  if (f.specials == Specials::fn && all_ones_exponent && all_ones_fraction) return kNan;
  if (f.specials == Specials::fnuz && negative && field == 0 && fraction == 0) return kNan;
  const double part = std::ldexp(fraction, -f.mantissa_bits);
  return field == 0 ? sign * std::ldexp(part, 1 - f.bias) : sign * std::ldexp(1.0 + part, field - f.bias);
}

std::uint32_t define_encode(const FormatInfo& f, float input, Overflow overflow) {
  const double value = input;
  if (is_integer(f)) return integer_code(f, value);
  if (f.specials == Specials::e8m0) return e8m0_code(value, overflow);
  if (std::isnan(value)) return f.specials == Specials::none ? f.max_finite_code : f.canonical_nan_code;

  const std::uint32_t sign = std::signbit(value) ? 1u << (f.bits - 1) : 0;
  const double magnitude = std::fabs(value);
  const int lowest = 1 - f.bias;
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  const double quantum = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double rounded = std::isinf(magnitude) ? magnitude : round_to(magnitude, quantum);
  if (rounded > static_cast<double>(f.max_finite)) {
    if (overflow == Overflow::saturate || f.specials == Specials::none) return sign | f.max_finite_code;
    if (f.specials == Specials::ieee) return sign | (((1u << f.exponent_bits) - 1) << f.mantissa_bits);
    return f.canonical_nan_code;
  }
  if (rounded == 0) return f.specials == Specials::fnuz ? 0 : sign;
  // rounded may have reached the next power of two
  const int reached = std::max(std::ilogb(rounded), lowest);
  const double units = std::ldexp(rounded, f.mantissa_bits - reached);
  const auto steps = static_cast<std::uint32_t>(units);
  return sign | ((static_cast<std::uint32_t>(reached - lowest) << f.mantissa_bits) + steps);
}

std::vector<std::uint32_t> boundary_inputs() {
  std::vector<std::uint32_t> inputs = {0x7fc00000, 0xffc00000, 0x7fffffff, 0x7f800001, 0xff800001, 0x7fc00123,
                                       0xffffffff, 0x7f800000, 0xff800000, 0x00000000, 0x80000000};
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (int position = 0; position <= 22; ++position) {
      for (std::uint32_t top = 0; top < 16; ++top) {
        // the four highest mantissa bits, then one bit further down, and its two neighbours
        const std::uint32_t mantissa = (top << 19) ^ (1u << position);
        for (const std::uint32_t near : {mantissa - 1, mantissa, mantissa + 1}) {
          const std::uint32_t magnitude = (exponent << 23) | (near & 0x7fffff);
          inputs.push_back(magnitude);
          inputs.push_back(magnitude | 0x80000000u);
        }
      }
    }
  }
  return inputs;
}

}  // namespace nanscope::testing
