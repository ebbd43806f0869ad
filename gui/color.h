#pragma once
#include <cstdint>

namespace nanscope::gui {

/// Red, green, blue, alpha, each 0..255.
struct Color {
  std::uint8_t r = 0;
  std::uint8_t g = 0;
  std::uint8_t b = 0;
  std::uint8_t a = 255;
  bool operator==(const Color&) const = default;

  /// 0xRRGGBB, opaque.
  static constexpr Color hex(std::uint32_t rgb) {
    return {static_cast<std::uint8_t>(rgb >> 16), static_cast<std::uint8_t>(rgb >> 8), static_cast<std::uint8_t>(rgb),
            255};
  }
  constexpr Color alpha(std::uint8_t value) const { return {r, g, b, value}; }
  /// As ImGui's draw lists and RGBA textures take it.
  constexpr std::uint32_t packed() const {
    return static_cast<std::uint32_t>(a) << 24 | static_cast<std::uint32_t>(b) << 16 |
           static_cast<std::uint32_t>(g) << 8 | static_cast<std::uint32_t>(r);
  }
};

/// `t` = 0 gives `from`, 1 gives `to`.
constexpr Color mix(Color from, Color to, float t) {
  const auto channel = [t](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(static_cast<float>(a) + (static_cast<float>(b) - static_cast<float>(a)) * t +
                                     0.5F);
  };
  return {channel(from.r, to.r), channel(from.g, to.g), channel(from.b, to.b), channel(from.a, to.a)};
}

/// Of text and its ground, 1 to 21, as WCAG 2.1 defines the contrast ratio.
double contrast(Color one, Color other);

}  // namespace nanscope::gui
