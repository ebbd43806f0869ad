#include "gui/preferences.h"

#include <fmt/format.h>

#include <cmath>

namespace nanscope::gui {

std::string_view name(Notation notation) {
  switch (notation) {
    case Notation::decimal:
      return "decimal";
    case Notation::hexadecimal:
      return "hexadecimal";
    case Notation::bits:
      return "bits";
  }
  return "";
}

std::optional<Notation> find_notation(std::string_view name) {
  for (const Notation notation : kNotations) {
    if (gui::name(notation) == name) return notation;
  }
  return std::nullopt;
}

std::string number_text(const NumberStyle& style, double value) {
  if (std::isnan(value)) return "NaN";
  if (style.notation == Notation::decimal || !std::isfinite(value)) return fmt::format("{:.{}g}", value, style.digits);
  return fmt::format("{:a}", value);
}

}  // namespace nanscope::gui
