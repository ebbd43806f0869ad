#include "gui/top_bar_layout.h"

#include <algorithm>

namespace nanscope::gui {
namespace {

constexpr float kBarMargin = 18;
constexpr float kBarButton = 30;
constexpr float kBarGap = 6;
constexpr float kNextWords = 96;
constexpr float kOriginWords = 78;
constexpr float kWordsFrom = 1080;  ///< from this width on the jumps have words

/// What can give way: at least so much, and as much as looks best.
struct Flexible {
  float least;
  float best;
  float at(float part) const { return least + part * (best - least); }
};
constexpr Flexible kFile{60, 204};
constexpr Flexible kPlaceField{190, 330};
constexpr Flexible kScrubber{84, 260};

}  // namespace

TopBarAreas lay_out_top_bar(Area bar, float scale) {
  const auto px = [scale](float pixels) { return pixels * scale; };
  TopBarAreas areas;
  areas.words = bar.width >= px(kWordsFrom);
  const float next = areas.words ? kNextWords : kBarButton;
  const float origin = areas.words ? kOriginWords : kBarButton;
  // Six buttons besides the jumps, ten gaps, and wider ones around play and the scrubber.
  const float fixed = px(2 * kBarMargin + 6 * kBarButton + next + origin + 14 * kBarGap);
  const float least = px(kFile.least + kPlaceField.least + kScrubber.least);
  const float best = px(kFile.best + kPlaceField.best + kScrubber.best);
  const float part = std::clamp((bar.width - fixed - least) / (best - least), 0.0F, 1.0F);

  const float y = bar.y + (bar.height - px(kBarButton)) / 2;
  float x = bar.x + px(kBarMargin);
  const auto take = [&](float width) {
    const Area taken{x, y, width, px(kBarButton)};
    x += width + px(kBarGap);
    return taken;
  };
  areas.home = take(px(kBarButton));
  areas.file = take(px(kFile.at(part)));
  areas.back = take(px(kBarButton));
  areas.forward = take(px(kBarButton));
  areas.place = take(px(kPlaceField.at(part)));
  areas.copy = take(px(kBarButton));
  x += px(2 * kBarGap);
  areas.play = take(px(kBarButton));
  const float behind = px(next + origin + kBarButton + 2 * kBarGap + kBarMargin);
  areas.scrubber = take(bar.right() - behind - px(3 * kBarGap) - x);
  x = bar.right() - behind;
  areas.next = take(px(next));
  areas.origin = take(px(origin));
  areas.find = take(px(kBarButton));
  return areas;
}

}  // namespace nanscope::gui
