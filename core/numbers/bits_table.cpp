#include "core/numbers/bits_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/numbers/anatomy.h"
#include "core/numbers/bits_input.h"

namespace nanscope::bits {
namespace {

std::string cell_text(Format format, std::uint32_t code) {
  const double value = exact_value(format, code);
  return info(format).specials == Specials::e8m0 && std::isfinite(value)
             ? fmt::format("2^{}", static_cast<int>(code) - info(format).bias)
             : short_decimal(value);
}

/// Rows of `columns` codes starting at 0; each column as wide as its longest cell.
std::string grid(Format format, std::uint32_t codes, std::uint32_t columns, bool binary_rows) {
  const FormatInfo& f = info(format);
  std::vector<std::size_t> width(columns, 4);
  for (std::uint32_t code = 0; code < codes; ++code) {
    width[code % columns] = std::max(width[code % columns], cell_text(format, code).size());
  }
  const int row_digits = std::max(f.exponent_bits, 4);
  std::string text = fmt::format("  {:>{}} ", binary_rows ? "E\\M" : "", row_digits);
  for (std::uint32_t column = 0; column < columns; ++column) {
    const std::string head =
        binary_rows ? fmt::format("{:0{}b}", column, f.mantissa_bits) : fmt::format("_{:x}", column);
    text += fmt::format(" {:>{}}", head, width[column]);
  }
  text += '\n';
  for (std::uint32_t row = 0; row < codes / columns; ++row) {
    const std::string head = binary_rows ? fmt::format("{:0{}b}", row, f.exponent_bits) : fmt::format("0x{:x}_", row);
    text += fmt::format("  {:>{}} ", head, row_digits);
    for (std::uint32_t column = 0; column < columns; ++column) {
      text += fmt::format(" {:>{}}", cell_text(format, row * columns + column), width[column]);
    }
    if (binary_rows) {
      const Anatomy a = dissect(format, row * columns);
      text += fmt::format("   2^{}{}", a.exponent, row == 0 ? " x 0.M" : row == 1 ? " x 1.M" : "");
    }
    text += '\n';
  }
  return text;
}

std::string small_table(Format format) {
  const FormatInfo& f = info(format);
  std::string text = fmt::format("{}: {} ({} bits)\n\n", f.name, f.spec, f.bits);
  if (f.exponent_bits == 0 || f.specials == Specials::e8m0) return text + grid(format, 1u << f.bits, 16, false);
  const std::uint32_t sign = 1u << (f.bits - 1);
  text += grid(format, sign, 1u << f.mantissa_bits, true);
  const std::string minus_zero = f.specials == Specials::fnuz
                                     ? fmt::format("; {} is NaN, there is no -0", code_text(format, sign))
                                     : fmt::format("; {} is -0", code_text(format, sign));
  return text + fmt::format("\n  code = E then M as binary digits; codes from {} are the same values negated{}\n",
                            code_text(format, sign), minus_zero);
}

/// Exponent fields that a summary shows: all of them, or the ends and every eighth.
std::vector<std::uint32_t> shown_exponents(const FormatInfo& f) {
  const std::uint32_t count = 1u << f.exponent_bits;
  std::vector<std::uint32_t> fields;
  for (std::uint32_t field = 0; field < count; ++field) {
    if (count <= 32 || field < 2 || field + 2 >= count || field % 8 == 0 || static_cast<int>(field) == f.bias) {
      fields.push_back(field);
    }
  }
  return fields;
}

std::string summary_table(Format format) {
  const FormatInfo& f = info(format);
  std::string text = fmt::format("{}: {} ({} bits), one line for a power of two\n\n", f.name, f.spec, f.bits);
  text += fmt::format("  {:>8} {:<6} {:<21} {:<24} {:<24} {}\n", "exponent", "", "codes", "from", "to", "gap");
  for (const std::uint32_t field : shown_exponents(f)) {
    const std::uint32_t first = field << f.mantissa_bits;
    const std::uint32_t last = first + ((1u << f.mantissa_bits) - 1u);
    const Anatomy a = dissect(format, first);
    const std::string codes = code_text(format, first) + ".." + code_text(format, last);
    const std::string power = field == (1u << f.exponent_bits) - 1 ? "" : fmt::format("2^{}", a.exponent);
    text += fmt::format("  {:>8} {:<6} {:<21} {:<24} {:<24} {}\n", field, power, codes, short_decimal(a.value),
                        short_decimal(exact_value(format, last)), a.gap_up ? fmt::format("{:.4g}", *a.gap_up) : "-");
  }
  const bool listable = f.bits <= 16;
  return text + fmt::format("\n  {} codes in all{}\n", std::uint64_t{1} << f.bits,
                            listable ? "; --all prints a line for each" : "");
}

std::string list_table(Format format) {
  const FormatInfo& f = info(format);
  std::string text = fmt::format("{}: {} ({} bits)\n\n", f.name, f.spec, f.bits);
  for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
    text += fmt::format("  {:<7} {:<19} {:<10} {}\n", code_text(format, code), field_text(format, code),
                        name(classify(format, code)), short_decimal(exact_value(format, code)));
  }
  return text;
}

}  // namespace

Result<std::string> table_text(Format format, bool all_codes) {
  const FormatInfo& f = info(format);
  if (all_codes && f.bits > 16) {
    return fail(fmt::format("{} has 2^{} codes; a line for each is printed up to 16 bits", f.name, f.bits));
  }
  if (all_codes) return list_table(format);
  if (f.bits <= 8) return small_table(format);
  if (f.exponent_bits == 0) {
    return fmt::format("{}: {}, every integer from {} to {}\n", f.name, f.spec,
                       exact_value(format, f.max_finite_code + 1), exact_value(format, f.max_finite_code));
  }
  return summary_table(format);
}

}  // namespace nanscope::bits
