#include "gui/pattern.h"

namespace nanscope::gui {
namespace {

constexpr int kLines = 8;  ///< pixels between lines
constexpr int kLevels = 5;
constexpr int kDots = 4;
constexpr int kDashes = 20;
constexpr int kSparse = 10;
constexpr std::uint8_t kStrong = 110;
constexpr std::uint8_t kWeak = 70;

/// What remains, also of negative numbers from 0 up.
int part(int number, int period) { return (number % period + period) % period; }

}  // namespace

bool inked(Pattern pattern, int x, int y) {
  switch (pattern) {
    case Pattern::none:
      return false;
    case Pattern::crossed:
      return part(x + y, kLines) == 0 || part(x - y, kLines) == 0;
    case Pattern::slanted:
      return part(x + y, kLines) < 2;
    case Pattern::back_slanted:
      return part(x - y, kLines) < 2;
    case Pattern::level:
      return part(y, kLevels) == 0;
    case Pattern::upright:
      return part(x, kLevels) == 0;
    case Pattern::dotted:
      return part(y, kDots) < 2 && part(x + (part(y, 2 * kDots) < kDots ? 0 : kDots / 2), kDots) < 2;
    case Pattern::dashed:
      return part(y, kDashes / 2) == 2 && part(x + (part(y, kDashes) < kDashes / 2 ? 0 : kDashes / 2), kDashes) < 4;
    case Pattern::sparse:
      return part(y, kSparse) < 2 && part(x + (part(y, 2 * kSparse) < kSparse ? 0 : kSparse / 2), kSparse) < 2;
  }
  return false;
}

Color pattern_ink(Pattern pattern, Color ground) {
  const Color black = Color::hex(0x000000);
  const Color white = Color::hex(0xFFFFFF);
  const bool weak = pattern == Pattern::dashed || pattern == Pattern::sparse;
  return (contrast(black, ground) > contrast(white, ground) ? black : white).alpha(weak ? kWeak : kStrong);
}

}  // namespace nanscope::gui
