#include "gui/views/tensor_layout.h"

#include <algorithm>
#include <iterator>

#include "gui/views/tensor_twin.h"
#include "gui/views/view.h"

namespace nanscope::gui {
namespace {

constexpr float kBarHeight = 42;
constexpr float kNumbersHeight = 44;
constexpr float kWordsHeight = 20;
constexpr float kTabsHeight = 28;
constexpr float kTensorTitleHeight = 24;
constexpr float kAxisHeight = 20;
constexpr float kColumnBars = 26;
constexpr float kRowBars = 34;
constexpr float kRowNames = 104;
constexpr float kTensorLegendHeight = 34;
constexpr float kBetween = 14;          ///< grids that are side by side
constexpr float kLeastGrid = 180;       ///< narrower ones are shown one at a time
constexpr float kBarsFromHeight = 620;  ///< with a twin, the shares of rows and columns stand back for the cells

}  // namespace

TensorMode twin_mode(Area area, float scale) {
  const float room = area.width / scale - kRowNames - kMargin - 2 * kBetween;
  return room >= 3 * kLeastGrid ? TensorMode::side_by_side : TensorMode::tabs;
}

TensorLayout lay_out_tensor(Area area, float scale, TensorMode mode) {
  const auto px = [scale](float pixels) { return pixels * scale; };
  const bool side = mode == TensorMode::side_by_side;
  const bool bars = mode == TensorMode::alone || area.height >= px(kBarsFromHeight);
  const float left = area.x + px(kMargin);
  const float width = area.width - px(2 * kMargin);
  TensorLayout out;
  float y = area.y;
  const auto take = [&](float height) {
    const Area taken{left, y, width, px(height)};
    y += px(height);
    return taken;
  };
  out.bar = take(kBarHeight);
  out.numbers = take(kNumbersHeight);
  if (mode != TensorMode::alone) out.words = take(kWordsHeight);
  if (mode == TensorMode::tabs) out.tabs = take(kTabsHeight);
  const float titles = y;
  if (side) y += px(kTensorTitleHeight);
  out.legend = {area.x, area.bottom() - px(kTensorLegendHeight), area.width, px(kTensorLegendHeight)};

  const std::size_t count = side ? std::size(kTwinParts) : 1;
  const float between = px(kBetween);
  const float row_bars = bars ? px(kRowBars + 4) : 0;
  const float first = area.x + px(kRowNames);
  const float room = area.right() - px(kMargin) - first - between * static_cast<float>(count - 1);
  const float pitch = room / static_cast<float>(count);
  const float column_bars = bars ? px(kColumnBars) : 0;
  const float top = y + px(kAxisHeight) + column_bars + px(3);
  const float height = std::max(1.0F, out.legend.y - px(2) - top);
  for (std::size_t i = 0; i < count; ++i) {
    const float x = first + static_cast<float>(i) * (pitch + between);
    const float cells = std::max(1.0F, pitch - row_bars);
    GridAreas grid;
    grid.axis = {x, y, cells, px(kAxisHeight)};
    grid.column_bars = {x, grid.axis.bottom(), cells, column_bars};
    grid.cells = {x, top, cells, height};
    if (i == 0) grid.row_names = {area.x, top, px(kRowNames - 8), height};
    if (bars) grid.row_bars = {x + cells + px(4), top, px(kRowBars), height};
    out.grids.push_back(grid);
    if (side) out.titles.push_back({x, titles, pitch, px(kTensorTitleHeight)});
  }
  return out;
}

}  // namespace nanscope::gui
