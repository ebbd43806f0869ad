#include "gui/top_bar_layout.h"

#include <algorithm>

namespace nanscope::gui {
namespace {

constexpr float kMargin = 18;
constexpr float kButton = 30;
constexpr float kGap = 6;
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
constexpr Flexible kPlace{190, 330};
constexpr Flexible kScrubber{84, 260};

}  // namespace

TopBarAreas lay_out_top_bar(Area bar, float scale) {
  const auto px = [scale](float pixels) { return pixels * scale; };
  TopBarAreas areas;
  areas.words = bar.width >= px(kWordsFrom);
  const float next = areas.words ? kNextWords : kButton;
  const float origin = areas.words ? kOriginWords : kButton;
  // Six buttons besides the jumps, ten gaps, and wider ones around play and the scrubber.
  const float fixed = px(2 * kMargin + 6 * kButton + next + origin + 14 * kGap);
  const float least = px(kFile.least + kPlace.least + kScrubber.least);
  const float best = px(kFile.best + kPlace.best + kScrubber.best);
  const float part = std::clamp((bar.width - fixed - least) / (best - least), 0.0F, 1.0F);

  const float y = bar.y + (bar.height - px(kButton)) / 2;
  float x = bar.x + px(kMargin);
  const auto take = [&](float width) {
    const Area taken{x, y, width, px(kButton)};
    x += width + px(kGap);
    return taken;
  };
  areas.home = take(px(kButton));
  areas.file = take(px(kFile.at(part)));
  areas.back = take(px(kButton));
  areas.forward = take(px(kButton));
  areas.place = take(px(kPlace.at(part)));
  areas.copy = take(px(kButton));
  x += px(2 * kGap);
  areas.play = take(px(kButton));
  const float behind = px(next + origin + kButton + 2 * kGap + kMargin);
  areas.scrubber = take(bar.right() - behind - px(3 * kGap) - x);
  x = bar.right() - behind;
  areas.next = take(px(next));
  areas.origin = take(px(origin));
  areas.find = take(px(kButton));
  return areas;
}

}  // namespace nanscope::gui
