#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gui/theme.h"

namespace nanscope::gui {

/// How the values of elements are written.
enum class Notation : std::uint8_t { decimal, hexadecimal, bits };
inline constexpr std::array<Notation, 3> kNotations = {Notation::decimal, Notation::hexadecimal, Notation::bits};
/// "decimal", "hexadecimal", "bits"
std::string_view name(Notation notation);
std::optional<Notation> find_notation(std::string_view name);

struct NumberStyle {
  int digits = 4;  ///< significant ones, of decimals
  Notation notation = Notation::decimal;
  bool operator==(const NumberStyle&) const = default;
};
inline constexpr std::array<int, 4> kDigitChoices = {3, 4, 6, 9};

/// "24.01", "0x1.802p+4"; bits are written as hexadecimals where there are none.
std::string number_text(const NumberStyle& style, double value);

/// Percent, of all that is drawn.
inline constexpr int kLeastZoom = 60;
inline constexpr int kMostZoom = 240;
inline constexpr int kZoomStep = 10;

/// What somebody likes, whatever is shown.
struct Preferences {
  bool dark = true;
  Vision vision = Vision::usual;
  int zoom = 100;
  NumberStyle numbers = {};
  bool operator==(const Preferences&) const = default;
};

}  // namespace nanscope::gui
