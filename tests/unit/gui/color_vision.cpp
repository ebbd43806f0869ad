#include "tests/unit/gui/color_vision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace nanscope::gui {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector times(const Matrix& matrix, const Vector& vector) {
  Vector product{};
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column) product[row] += matrix[row][column] * vector[column];
  }
  return product;
}

Matrix simulation(Vision vision) {
  switch (vision) {
    case Vision::protan:
      return {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}};
    case Vision::deutan:
      return {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}};
    case Vision::tritan:
      return {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}};
    case Vision::usual:
      break;
  }
  return {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
}

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

/// In degrees, 0 to 360; 0 of grey.
double hue(double a, double b) {
  if (a == 0 && b == 0) return 0;
  const double angle = std::atan2(b, a) * 180 / std::numbers::pi;
  return angle < 0 ? angle + 360 : angle;
}

double mean_hue(double one, double other) {
  if (std::abs(one - other) <= 180) return (one + other) / 2;
  return one + other < 360 ? (one + other + 360) / 2 : (one + other - 360) / 2;
}

/// From 1 for grey to 0 for strong colours.
double grey_part(double chroma) {
  const double power = std::pow(chroma, 7);
  return std::sqrt(power / (power + std::pow(25, 7)));
}

}  // namespace

double color_distance(const Lab& one, const Lab& other) {
  const double stretched = 1.5 - 0.5 * grey_part((std::hypot(one.a, one.b) + std::hypot(other.a, other.b)) / 2);
  const double a1 = one.a * stretched;
  const double a2 = other.a * stretched;
  const double c1 = std::hypot(a1, one.b);
  const double c2 = std::hypot(a2, other.b);
  const double h1 = hue(a1, one.b);
  const double h2 = hue(a2, other.b);
  const bool grey = c1 * c2 == 0;
  double turn = grey ? 0 : h2 - h1;
  if (turn > 180) turn -= 360;
  if (turn < -180) turn += 360;
  const double hue_step = 2 * std::sqrt(c1 * c2) * std::sin(radians(turn / 2));
  const double light = (one.l + other.l) / 2;
  const double chroma = (c1 + c2) / 2;
  const double middle = grey ? h1 + h2 : mean_hue(h1, h2);
  const double t = 1 - 0.17 * std::cos(radians(middle - 30)) + 0.24 * std::cos(radians(2 * middle)) +
                   0.32 * std::cos(radians(3 * middle + 6)) - 0.2 * std::cos(radians(4 * middle - 63));
  const double offset = (light - 50) * (light - 50);
  const double by_light = (other.l - one.l) / (1 + 0.015 * offset / std::sqrt(20 + offset));
  const double by_chroma = (c2 - c1) / (1 + 0.045 * chroma);
  const double by_hue = hue_step / (1 + 0.015 * chroma * t);
  const double blue = 30 * std::exp(-std::pow((middle - 275) / 25, 2));
  const double rotation = -std::sin(radians(2 * blue)) * 2 * grey_part(chroma);
  return std::sqrt(by_light * by_light + by_chroma * by_chroma + by_hue * by_hue + rotation * by_chroma * by_hue);
}

Lab seen(Color color, Vision vision) {
  const auto linear = [](std::uint8_t channel) {
    const double value = channel / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  Vector rgb = times(simulation(vision), {linear(color.r), linear(color.g), linear(color.b)});
  for (double& channel : rgb) channel = std::clamp(channel, 0.0, 1.0);
  const Vector xyz = times(
      {{{0.4124564, 0.3575761, 0.1804375}, {0.2126729, 0.7151522, 0.0721750}, {0.0193339, 0.1191920, 0.9503041}}}, rgb);
  const auto root = [](double value) {
    return value > 216.0 / 24389 ? std::cbrt(value) : (24389.0 / 27 * value + 16) / 116;
  };
  const double x = root(xyz[0] / 0.95047);
  const double y = root(xyz[1]);
  const double z = root(xyz[2] / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

}  // namespace nanscope::gui
