#include "gui/color.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {
namespace {

/// Relative luminance of sRGB, as WCAG 2.1 defines it.
double luminance(Color color) {
  const auto linear = [](std::uint8_t channel) {
    const double value = channel / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b);
}

}  // namespace

double contrast(Color one, Color other) {
  const auto [dark, light] = std::minmax({luminance(one), luminance(other)});
  return (light + 0.05) / (dark + 0.05);
}

}  // namespace nanscope::gui
