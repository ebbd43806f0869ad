#include "core/numbers/bits_words.h"

#include <fmt/format.h>

#include <cmath>

namespace nanscope::bits {

std::string real_text(double code_value, double scale) {
  return fmt::format("{}", static_cast<float>(code_value) * static_cast<float>(scale));
}

std::string percent(double share) { return fmt::format("{:.3g} %", share * 100); }

std::string fields_note(const Anatomy& a) {
  const FormatInfo& f = info(a.format);
  if (f.exponent_bits == 0) return fmt::format("two's complement of {} bits", f.bits);
  if (f.specials == Specials::e8m0)
    return fmt::format("exponent {} - bias {} = {}", a.exponent_field, f.bias, a.exponent);
  const char* why = a.exponent_field == 0 ? " (field 0: no implicit 1)" : "";
  return fmt::format("sign {}, exponent {} - bias {} = {}{}, mantissa {}/{}", a.negative ? '-' : '+',
                     a.exponent_field == 0 ? 1 : a.exponent_field, f.bias, a.exponent, why, a.mantissa_field,
                     1u << f.mantissa_bits);
}

std::string outcome(const Rounding& r) {
  if (r.laundered) return "NaN became a number: laundered";
  if (std::isnan(r.value)) return "NaN, canonical";
  if (r.overflowed) return std::isnan(r.stored) ? "beyond the range: became NaN" : "beyond the range: became Inf";
  if (std::isinf(r.value))
    return std::isinf(r.stored) ? "exact" : std::isnan(r.stored) ? "Inf became NaN" : "Inf clipped";
  if (r.exact) return "exact";
  std::string lost = r.relative_loss ? percent(*r.relative_loss) + " lost" : "not representable";
  if (r.sign_dropped) return "no sign in this format: magnitude kept";
  if (r.clipped) return fmt::format("clipped, {}", lost);
  if (r.flushed) return fmt::format("flushed to zero, {}", lost);
  return lost;
}

std::string bucket_text(const Rounding& r, const std::string& label) {
  if (!r.midpoint || r.exact) return "";
  const char* relation = r.tie ? "is" : r.source < *r.midpoint ? "is below" : "is above";
  const char* why = r.tie ? "the tie goes to the even code" : r.stored < r.value ? "it goes down" : "it goes up";
  const std::string cast = r.tie && r.source != r.value ? label + " (as f32)" : label;
  return fmt::format("{} {} the midpoint {} of {} and {}: {}", cast, relation, short_decimal(*r.midpoint),
                     short_decimal(exact_value(r.format, *r.lower)), short_decimal(exact_value(r.format, *r.upper)),
                     why);
}

}  // namespace nanscope::bits
