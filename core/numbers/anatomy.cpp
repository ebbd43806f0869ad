#include "core/numbers/anatomy.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

bool is_integer(const FormatInfo& f) { return f.exponent_bits == 0; }

std::uint32_t code_mask(const FormatInfo& f) { return f.bits == 32 ? 0xffffffffu : (1u << f.bits) - 1u; }

std::uint32_t sign_bit(const FormatInfo& f) { return f.has_sign ? 1u << (f.bits - 1) : 0u; }

/// Codes of one sign that are not NaN, both zeros counted: finite ones, and Inf where there is one.
std::uint64_t magnitudes(const FormatInfo& f) {
  return std::uint64_t{f.max_finite_code} + (f.specials == Specials::ieee ? 2 : 1);
}

/// Negative codes that are not NaN, -0 included where it exists.
std::uint64_t negatives(const FormatInfo& f) {
  if (!f.has_sign) return 0;
  return f.specials == Specials::fnuz ? magnitudes(f) - 1 : magnitudes(f);
}

std::string float_formula(const FormatInfo& f, const Anatomy& a) {
  const bool normal = a.kind == NumberClass::normal;
  return fmt::format("(-1)^{} x 2^({}-{}) x ({} + {}/{}) = {}", a.negative ? 1 : 0, normal ? a.exponent_field : 1u,
                     f.bias, normal ? 1 : 0, a.mantissa_field, 1u << f.mantissa_bits, short_decimal(a.value));
}

std::string nan_reason(const FormatInfo& f) {
  switch (f.specials) {
    case Specials::ieee:
      return "exponent all ones, mantissa not 0 = NaN";
    case Specials::fn:
      return "exponent and mantissa all ones = NaN";
    case Specials::fnuz:
      return "the code of -0 = NaN";
    case Specials::e8m0:
      return "all ones = NaN";
    case Specials::none:
      break;
  }
  return "NaN";
}

std::string formula_of(const FormatInfo& f, const Anatomy& a) {
  if (a.kind == NumberClass::nan) return nan_reason(f);
  if (a.kind == NumberClass::inf) return fmt::format("exponent all ones, mantissa 0 = {}Inf", a.negative ? '-' : '+');
  if (f.specials == Specials::e8m0) return fmt::format("2^({}-{}) = {}", a.code, f.bias, short_decimal(a.value));
  if (is_integer(f)) {
    return fmt::format("{} x -2^{} + {} = {}", a.negative ? 1 : 0, f.mantissa_bits, a.mantissa_field,
                       short_decimal(a.value));
  }
  return float_formula(f, a);
}

}  // namespace

std::string_view name(NumberClass kind) {
  static constexpr std::array<std::string_view, 5> kNames = {"zero", "subnormal", "normal", "inf", "nan"};
  return kNames[static_cast<std::size_t>(kind)];
}

NumberClass classify(Format format, std::uint32_t code) {
  const FormatInfo& f = info(format);
  code &= code_mask(f);
  if (is_integer(f)) return code == 0 ? NumberClass::zero : NumberClass::normal;
  const std::uint32_t bits = decode_bits(codec_params(f), code);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return NumberClass::nan;
  if (magnitude == 0x7f800000u) return NumberClass::inf;
  if (f.specials == Specials::e8m0) return NumberClass::normal;
  const std::uint32_t field = (code & ~sign_bit(f)) >> f.mantissa_bits;
  if (field != 0) return NumberClass::normal;
  return magnitude == 0 ? NumberClass::zero : NumberClass::subnormal;
}

double exact_value(Format format, std::uint32_t code) {
  if (format == Format::i32) return static_cast<double>(static_cast<std::int32_t>(code));
  return static_cast<double>(decode(format, code));
}

std::uint64_t ordered_count(Format format) {
  const FormatInfo& f = info(format);
  if (is_integer(f)) return std::uint64_t{1} << f.bits;
  return negatives(f) + magnitudes(f);
}

std::optional<std::uint64_t> order_index(Format format, std::uint32_t code) {
  const FormatInfo& f = info(format);
  code &= code_mask(f);
  if (is_integer(f)) return code ^ sign_bit(f);
  if (classify(format, code) == NumberClass::nan) return std::nullopt;
  const std::uint32_t magnitude = code & ~sign_bit(f);
  if ((code & sign_bit(f)) == 0) return negatives(f) + magnitude;
  return magnitudes(f) - 1 - magnitude;
}

std::uint32_t code_at(Format format, std::uint64_t index) {
  const FormatInfo& f = info(format);
  if (is_integer(f)) return static_cast<std::uint32_t>(index) ^ sign_bit(f);
  if (index >= negatives(f)) return static_cast<std::uint32_t>(index - negatives(f));
  return sign_bit(f) | static_cast<std::uint32_t>(magnitudes(f) - 1 - index);
}

std::optional<std::uint32_t> next_up(Format format, std::uint32_t code) {
  const auto index = order_index(format, code);
  if (!index) return std::nullopt;
  const bool minus_zero = classify(format, code) == NumberClass::zero && (code & sign_bit(info(format))) != 0;
  const std::uint64_t next = *index + (minus_zero ? 2 : 1);
  if (next >= ordered_count(format)) return std::nullopt;
  return code_at(format, next);
}

std::optional<std::uint32_t> next_down(Format format, std::uint32_t code) {
  const FormatInfo& f = info(format);
  const auto index = order_index(format, code);
  if (!index) return std::nullopt;
  const bool zero = classify(format, code) == NumberClass::zero;
  const bool has_minus_zero = !is_integer(f) && f.has_sign && f.specials != Specials::fnuz;
  const bool plus_zero = zero && has_minus_zero && (code & sign_bit(f)) == 0;
  const std::uint64_t step = plus_zero ? 2 : 1;
  if (*index < step) return std::nullopt;
  return code_at(format, *index - step);
}

Anatomy dissect(Format format, std::uint32_t code) {
  const FormatInfo& f = info(format);
  Anatomy a{};
  a.format = format;
  a.code = code & code_mask(f);
  a.kind = classify(format, a.code);
  a.negative = (a.code & sign_bit(f)) != 0;
  a.mantissa_field = a.code & ((1u << f.mantissa_bits) - 1u);
  a.exponent_field = (a.code & ~sign_bit(f)) >> f.mantissa_bits;
  if (is_integer(f)) {
    a.exponent = 0;
  } else {
    const bool has_subnormals = f.specials != Specials::e8m0;
    const auto field = static_cast<int>(a.exponent_field);
    a.exponent = (has_subnormals && field == 0 ? 1 : field) - f.bias;
  }
  a.value = exact_value(format, a.code);
  a.formula = formula_of(f, a);
  a.decimal = exact_decimal(a.value);
  a.index = order_index(format, a.code);
  a.up = next_up(format, a.code);
  a.down = next_down(format, a.code);
  const auto gap = [&](std::optional<std::uint32_t> other) -> std::optional<double> {
    if (!other) return std::nullopt;
    const double distance = std::fabs(exact_value(format, *other) - a.value);
    if (!std::isfinite(distance)) return std::nullopt;
    return distance;
  };
  a.gap_up = gap(a.up);
  a.gap_down = gap(a.down);
  return a;
}

std::string exact_decimal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Below 2^-k a double has at most 1074 digits after the point.
  std::string text = fmt::format("{:.1074f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string short_decimal(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "Inf";
  return fmt::format("{}", value);
}

}  // namespace nanscope
