#include "core/numbers/bits_input.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "core/numbers/anatomy.h"

namespace nanscope::bits {
namespace {

constexpr std::string_view kAccepted = "a number (430, -1e-3, nan, inf) or a code (0x7e, 0b0_1111_110)";

std::string format_list() {
  std::string list;
  for (const FormatInfo& f : formats()) list += fmt::format("{}{}", list.empty() ? "" : " ", f.name);
  return list;
}

Result<Format> parse_format(const std::string& text) {
  if (const auto format = format_from_name(text)) return *format;
  return fail(fmt::format("unknown format '{}'; known: {}", text, format_list()));
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// Digits of a code without separators; fails on anything else.
Result<Input> parse_code(std::string_view typed, std::string_view digits, int base) {
  std::string plain;
  for (const char c : digits) {
    if (c != '_') plain += c;
  }
  std::uint32_t bits = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), bits, base);
  if (error == std::errc::result_out_of_range) return fail(fmt::format("code '{}' has more than 32 bits", typed));
  if (plain.empty() || error != std::errc() || end != plain.data() + plain.size()) {
    return fail(fmt::format("'{}' is no code; expected {}", typed, kAccepted));
  }
  Input input;
  input.kind = InputKind::code;
  input.bits = bits;
  input.width = static_cast<int>(plain.size()) * (base == 16 ? 4 : 1);
  return input;
}

Result<Input> parse_value(std::string_view typed, std::string_view text) {
  Input input;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::chars_format style = std::chars_format::general;
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    style = std::chars_format::hex;
  }
  const bool signed_twice = text.starts_with('-') || text.starts_with('+');
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), input.value, style);
  if (error == std::errc::result_out_of_range) {
    return fail(fmt::format("'{}' is outside the range of a double (about 1e-308 to 1.8e308)", typed));
  }
  if (signed_twice || error != std::errc() || end != text.data() + text.size()) {
    return fail(fmt::format("'{}' is no number; expected {}", typed, kAccepted));
  }
  if (negative) input.value = std::copysign(input.value, -1.0);
  return input;
}

Result<Input> parse_input(std::string_view typed) {
  if (typed.empty()) return fail(fmt::format("no number given; expected {}", kAccepted));
  if (typed.size() > 400) return fail(fmt::format("the number has {} characters, at most 400 are read", typed.size()));
  const std::string text = lower(typed);
  if (text.starts_with("0b")) return parse_code(typed, std::string_view(text).substr(2), 2);
  const bool hex_float = text.find_first_of(".p") != std::string::npos;
  if (text.starts_with("0x") && !hex_float) return parse_code(typed, std::string_view(text).substr(2), 16);
  return parse_value(typed, text);
}

/// With a format, a code must fit it, or be an f32 pattern for a cast.
Result<Input> fit_code(const BitsOptions& options, Input input, Format format) {
  const FormatInfo& f = info(format);
  if (f.bits == 32 || input.bits < (1u << f.bits)) {
    if (input.width == 32 && f.bits < 32) input.kind = InputKind::f32_bits;
    return input;
  }
  if (input.width == 32) {
    input.kind = InputKind::f32_bits;
    return input;
  }
  return fail(fmt::format("code {} does not fit the {} bits of {}; its largest code is 0x{:x}", options.input, f.bits,
                          f.name, (1u << f.bits) - 1u));
}

float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value; }

/// The cast where f32 has no subnormal values. The loss is against the value as given.
Rounding cast_flushed(const Input& input, Format format, const BitsOptions& options, Overflow overflow) {
  const float given = input.kind == InputKind::f32_bits ? std::bit_cast<float>(input.bits) : f32_of(input.value);
  const double wanted = (input.kind == InputKind::f32_bits ? static_cast<double>(given) : input.value) / options.scale;
  float quotient = flushed(given);
  if (options.scale != 1.0) quotient = flushed(quotient / flushed(static_cast<float>(options.scale)));
  Rounding r = std::isnan(given) ? round_bits(format, std::bit_cast<std::uint32_t>(given), overflow)
                                 : round_value(format, static_cast<double>(quotient), overflow);
  if (std::isfinite(wanted) && wanted != 0 && quotient == 0) {
    r.value = wanted;
    r.exact = false;
    r.flushed = true;
    r.absolute_loss = std::fabs(wanted);
    r.relative_loss = 1;
  }
  return r;
}

}  // namespace

Result<Request> parse_request(const BitsOptions& options) {
  if (!std::isfinite(options.scale) || !(options.scale > 0) || !(static_cast<float>(options.scale) > 0) ||
      options.scale > static_cast<double>(std::numeric_limits<float>::max())) {
    return fail(fmt::format("scale {} is not a positive f32; a real value is code x scale", options.scale));
  }
  Request request;
  if (!options.format.empty()) {
    const Result<Format> format = parse_format(options.format);
    if (!format) return tl::unexpected(format.error());
    request.format = *format;
  }
  Result<Input> input = parse_input(options.input);
  if (input && input->kind == InputKind::code && request.format) input = fit_code(options, *input, *request.format);
  if (!input) return tl::unexpected(input.error());
  request.input = *input;
  return request;
}

Result<Format> parse_table_format(const BitsOptions& options) {
  if (!options.format.empty()) return parse_format(options.format);
  if (options.input.empty()) return fail(fmt::format("--table needs a format; known: {}", format_list()));
  return parse_format(options.input);
}

Overflow overflow_of(const BitsOptions& options, Format format) {
  return options.overflow.value_or(usual_overflow(format));
}

Rounding cast_input(const Input& input, Format format, const BitsOptions& options) {
  const bool from_bits = input.kind == InputKind::f32_bits;
  const Overflow overflow = overflow_of(options, format);
  if (options.ftz && format != Format::i32) return cast_flushed(input, format, options, overflow);
  if (options.scale == 1.0) {
    return from_bits ? round_bits(format, input.bits, overflow) : round_value(format, input.value, overflow);
  }
  const float real = from_bits ? std::bit_cast<float>(input.bits) : f32_of(input.value);
  return round_value(format, static_cast<double>(real / static_cast<float>(options.scale)), overflow);
}

std::string code_text(Format format, std::uint32_t code) {
  return fmt::format("0x{:0{}x}", code, (info(format).bits + 3) / 4);
}

std::string field_text(Format format, std::uint32_t code) {
  const FormatInfo& f = info(format);
  std::string text;
  for (int bit = f.bits - 1; bit >= 0; --bit) {
    text += (code >> bit) & 1u ? '1' : '0';
    const bool after_sign = f.has_sign && bit == f.bits - 1;
    const bool after_exponent = bit == f.mantissa_bits && f.exponent_bits > 0;
    if (bit > 0 && (after_sign || after_exponent)) text += '_';
  }
  return text;
}

}  // namespace nanscope::bits

namespace nanscope {

Overflow usual_overflow(Format format) {
  const FormatInfo& f = info(format);
  return f.bits <= 8 || f.specials != Specials::ieee ? Overflow::saturate : Overflow::overflow;
}

}  // namespace nanscope
