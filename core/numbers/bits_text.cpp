#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

#include "core/numbers/anatomy.h"
#include "core/numbers/bits_drawing.h"
#include "core/numbers/bits_input.h"
#include "core/numbers/bits_report.h"
#include "core/numbers/bits_table.h"
#include "core/numbers/bits_words.h"
#include "core/numbers/casts.h"

namespace nanscope {
namespace {

using bits::code_text;
using bits::fields_note;
using bits::InputKind;
using bits::outcome;
using bits::percent;
using bits::real_text;

std::string line(std::string_view key, const std::string& text) { return fmt::format("  {:<11}{}\n", key, text); }

std::string_view specials_text(Specials specials) {
  switch (specials) {
    case Specials::ieee:
      return "has Inf and NaN";
    case Specials::fn:
    case Specials::e8m0:
      return "has NaN, no Inf";
    case Specials::fnuz:
      return "one NaN, no Inf, no -0";
    case Specials::none:
      return "no NaN, no Inf";
  }
  return "";
}

std::string limits_text(Format format) {
  const FormatInfo& f = info(format);
  const double largest = exact_value(format, f.max_finite_code);
  std::string text = fmt::format("largest {} ({})", short_decimal(largest), code_text(format, f.max_finite_code));
  if (f.exponent_bits > 0)
    text += fmt::format(", smallest normal {}", short_decimal(static_cast<double>(f.min_normal)));
  if (f.min_subnormal > 0) text += fmt::format(", subnormal {}", short_decimal(static_cast<double>(f.min_subnormal)));
  return text;
}

std::string neighbour(Format format, const char* direction, std::optional<std::uint32_t> code,
                      std::optional<double> gap) {
  if (!code) return fmt::format("nothing {}", direction);
  const std::string distance = gap ? fmt::format(", {} away", short_decimal(*gap)) : "";
  return fmt::format("{} {} ({}{})", direction, short_decimal(exact_value(format, *code)), code_text(format, *code),
                     distance);
}

std::string anatomy_text(const Anatomy& a, double scale, bool ascii) {
  std::string text = bits::draw_fields(a, ascii) + "\n";
  const bool finite = std::isfinite(a.value);
  if (finite) text += line("fields", fields_note(a));
  text += line("formula", a.formula);
  if (finite && a.decimal != short_decimal(a.value)) text += line("exactly", a.decimal);
  if (scale != 1.0 && finite) {
    text += line("real", fmt::format("{} x scale {} = {}", short_decimal(a.value), scale, real_text(a.value, scale)));
  }
  std::string kind(name(a.kind));
  if (a.index) kind += fmt::format(", number {} of {} in order of value", *a.index + 1, ordered_count(a.format));
  text += line("class", kind);
  if (a.index) {
    text += line("neighbours", neighbour(a.format, "below", a.down, a.gap_down) + ", " +
                                   neighbour(a.format, "above", a.up, a.gap_up));
  }
  text += line("range", limits_text(a.format));
  const FormatInfo& f = info(a.format);
  return text + line("format", fmt::format("{}; {}", f.spec, specials_text(f.specials)));
}

std::string rounding_lines(const Rounding& r, const std::string& label, double scale) {
  std::string text;
  if (const std::string bucket = bits::bucket_text(r, label); !bucket.empty()) text += line("bucket", bucket);
  if (r.absolute_loss && *r.absolute_loss > 0) {
    const std::string relative = r.relative_loss ? fmt::format(" of {} ({})", label, percent(*r.relative_loss)) : "";
    text += line("lost", short_decimal(*r.absolute_loss) + relative);
  }
  if (r.clipped) {
    const double largest = std::fabs(r.stored);
    const std::string real = scale == 1.0 ? "" : fmt::format(" (real {})", real_text(largest, scale));
    text += line("clipped", fmt::format("every value beyond {}{} is stored as the same code {}", short_decimal(largest),
                                        real, code_text(r.format, r.code)));
  }
  return text;
}

std::string input_label(const bits::Input& input) {
  if (input.kind == InputKind::value) return short_decimal(input.value);
  const double value = static_cast<double>(std::bit_cast<float>(input.bits));
  return fmt::format("f32 0x{:08x} ({})", input.bits, short_decimal(value));
}

std::string mode_text(const BitsOptions& options, Format format) {
  return bits::overflow_of(options, format) == Overflow::saturate ? "saturating" : "not saturating";
}

std::string modes_text(const BitsOptions& options) {
  std::string text = !options.overflow                         ? "8 bits and less saturate"
                     : *options.overflow == Overflow::saturate ? "saturating"
                                                               : "not saturating";
  return text + (options.ftz ? ", subnormal f32 flushed" : "");
}

std::string code_report(Format format, std::uint32_t code, const BitsOptions& options) {
  const Anatomy a = dissect(format, code);
  std::string text = fmt::format("{} code {}: {}\n\n", name(format), code_text(format, a.code), short_decimal(a.value));
  text += anatomy_text(a, options.scale, options.ascii);
  Rounding place = round_value(format, a.value, Overflow::overflow);
  place.code = a.code;
  place.lower = place.upper = a.code;
  const std::string ruler =
      std::isfinite(a.value) ? bits::draw_buckets(place, short_decimal(a.value), options.ascii) : "";
  return ruler.empty() ? text : text + "\n" + ruler;
}

/// Who stores what, where they do not agree.
std::string stack_lines(const bits::Input& input, Format format, const BitsOptions& options) {
  std::string text;
  std::uint32_t before = 0;
  bool differ = false;
  for (const CastRule& rule : cast_rules(format)) {
    BitsOptions theirs = options;
    theirs.overflow = rule.overflow;
    const Rounding r = bits::cast_input(input, format, theirs);
    differ = differ || (!text.empty() && r.code != before);
    if (text.empty() || r.code != before) {
      text += (text.empty() ? "" : "\n") + fmt::format("  {:<11}{} ({}) by {}", text.empty() ? "stacks" : "",
                                                       short_decimal(r.stored), code_text(format, r.code), rule.stack);
    } else {
      text += fmt::format(", {}", rule.stack);
    }
    before = r.code;
  }
  return differ ? text + "\n" : "";
}

std::string value_report(const bits::Input& input, Format format, const BitsOptions& options) {
  const Rounding r = bits::cast_input(input, format, options);
  const std::string label = input_label(input);
  const std::string in_units = options.scale == 1.0 ? label : short_decimal(r.value);
  std::string text =
      fmt::format("{} as {}, {}: stored as {} ({}), {}\n", label, name(format), mode_text(options, format),
                  short_decimal(r.stored), code_text(format, r.code), outcome(r));
  if (options.scale != 1.0) {
    text += fmt::format("scale {}: {} / scale = {}, stored {} x scale = {}\n", options.scale, label,
                        short_decimal(r.value), short_decimal(r.stored), real_text(r.stored, options.scale));
  }
  text += '\n';
  text += anatomy_text(dissect(format, r.code), options.scale, options.ascii) +
          rounding_lines(r, in_units, options.scale) + stack_lines(input, format, options);
  const std::string ruler = std::isfinite(r.value) ? bits::draw_buckets(r, in_units, options.ascii) : "";
  return ruler.empty() ? text : text + "\n" + ruler;
}

std::string every_format(const bits::Input& input, const BitsOptions& options) {
  const std::string scaled = options.scale == 1.0 ? "" : fmt::format(", scale {}", options.scale);
  std::string text = fmt::format("{} in every format ({}{})\n\n", input_label(input), modes_text(options), scaled);
  text += fmt::format("  {:<9} {:<11} {:<23} {:<12} {}\n", "format", "code", "stored", "gap above", "");
  for (const FormatInfo& f : formats()) {
    const Rounding r = bits::cast_input(input, f.format, options);
    const Anatomy a = dissect(f.format, r.code);
    const std::string stored = options.scale == 1.0 ? short_decimal(r.stored) : real_text(r.stored, options.scale);
    const std::string gap = a.gap_up ? fmt::format("{:.4g}", *a.gap_up * options.scale) : "-";
    text +=
        fmt::format("  {:<9} {:<11} {:<23} {:<12} {}\n", f.name, code_text(f.format, r.code), stored, gap, outcome(r));
  }
  return text;
}

/// A code typed without a format: what it means to each format of its width. Reading codes of one
/// flavour as another is a fault of its own.
std::string every_reading(const bits::Input& input, const BitsOptions& options) {
  const int width = input.width <= 8 ? 8 : input.width <= 16 ? 16 : 32;
  std::string text = fmt::format("code {} read as\n\n  {:<9} {:<24} {:<10} {}\n", options.input, "format", "value",
                                 "class", "formula");
  for (const FormatInfo& f : formats()) {
    const bool same_storage = static_cast<int>(f.storage_bytes()) * 8 == width;
    if (!same_storage || (f.bits < 32 && input.bits >= (1u << f.bits))) continue;
    const Anatomy a = dissect(f.format, input.bits);
    const std::string value =
        options.scale == 1.0 || !std::isfinite(a.value) ? short_decimal(a.value) : real_text(a.value, options.scale);
    text += fmt::format("  {:<9} {:<24} {:<10} {}\n", f.name, value, name(a.kind), a.formula);
  }
  if (width < 32) return text;
  bits::Input pattern = input;
  pattern.kind = InputKind::f32_bits;
  return text + "\n" + every_format(pattern, options);
}

}  // namespace

Result<std::string> bits_text(const BitsOptions& options) {
  if (options.table) {
    const Result<Format> format = bits::parse_table_format(options);
    if (!format) return tl::unexpected(format.error());
    return bits::table_text(*format, options.all_codes);
  }
  const Result<bits::Request> request = bits::parse_request(options);
  if (!request) return tl::unexpected(request.error());
  const bits::Input& input = request->input;
  if (!request->format) {
    return input.kind == InputKind::code ? every_reading(input, options) : every_format(input, options);
  }
  if (input.kind == InputKind::code) return code_report(*request->format, input.bits, options);
  return value_report(input, *request->format, options);
}

}  // namespace nanscope
