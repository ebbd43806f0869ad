#include "gui/window_layout.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {
namespace {

constexpr float kTopBar = 52;
constexpr float kStatusBar = 28;
constexpr float kPaneGap = 6;
constexpr float kLeastLeft = 176;
constexpr float kLeastRight = 300;
constexpr float kLeastCentre = 400;
constexpr float kLeastHeight = 200;

}  // namespace

WindowAreas lay_out(Area window, Shares& shares, float scale, bool enlarged) {
  const float gap = kPaneGap * scale;
  const float top = window.y + kTopBar * scale + gap;
  const float height = window.height - (kTopBar + kStatusBar) * scale - 2 * gap;
  const auto corrected = [](float& share, float whole, float least, float most) {
    const float pixels = std::clamp(share * whole, least, std::max(least, most));
    share = pixels / whole;
    return std::round(pixels);  // the share is not rounded: slow dragging would not move it
  };
  const bool listed = window.width >= (kLeastLeft + kLeastCentre + kLeastRight) * scale + 2 * gap;
  const float left = listed ? corrected(shares.left, window.width, kLeastLeft * scale, window.width / 3) + gap : 0;
  const float room = window.width - left - kLeastCentre * scale - gap;
  const float right = corrected(shares.right, window.width, kLeastRight * scale, room);
  const float upper = corrected(shares.upper, height, kLeastHeight * scale, height - kLeastHeight * scale - gap);

  WindowAreas areas;
  areas.top_bar = {window.x, window.y, window.width, kTopBar * scale};
  areas.status = {window.x, window.bottom() - kStatusBar * scale, window.width, kStatusBar * scale};
  if (listed) {
    areas.left = {window.x, top, left - gap, height};
    areas.left_gap = {areas.left.right(), top, gap, height};
  }
  const float centre = window.x + left;
  if (enlarged) {
    areas.lower = {centre, top, window.right() - centre, height};
    return areas;
  }
  areas.right = {window.right() - right, top, right, height};
  areas.right_gap = {areas.right.x - gap, top, gap, height};
  areas.upper = {centre, top, areas.right_gap.x - centre, upper};
  areas.middle_gap = {centre, areas.upper.bottom(), areas.upper.width, gap};
  areas.lower = {centre, areas.middle_gap.bottom(), areas.upper.width, top + height - areas.middle_gap.bottom()};
  return areas;
}

}  // namespace nanscope::gui
