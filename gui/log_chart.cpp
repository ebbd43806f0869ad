#include "gui/log_chart.h"

#include <algorithm>
#include <cmath>

#include "gui/paint.h"

namespace nanscope::gui {

LogAxis axis_of(const LogRange& range) {
  return range.highest > 0 ? LogAxis(range.lowest, range.highest) : LogAxis(1, 2);
}

void draw_ground(const ViewContext& context, const Area& plot, const LogAxis& axis, float left) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  fill(plot, context.theme.cell(kAbsent), px(3));
  for (const double tick : axis.ticks(static_cast<std::size_t>(std::max(plot.height, 0.0F) / px(19)))) {
    const float at = std::floor(plot.bottom() - plot.height * static_cast<float>(axis.at(tick)));
    fill({plot.x, at, plot.width, 1}, context.theme.line.alpha(150));
    label(context.fonts.mono_small, {left, at - px(7), plot.x - px(6) - left, px(14)}, context.theme.muted,
          short_number(tick), 1);
  }
}

void CurveLine::to(ImVec2 here) {
  if (before_ && std::abs(before_->x - here.x) < 0.5F && std::abs(before_->y - here.y) < 0.5F) return;
  if (before_) line(*before_, here, color_, width_);
  if (dots_ || !before_) ImGui::GetWindowDrawList()->AddCircleFilled(here, radius_, color_.packed(), 12);
  before_ = here;
}

}  // namespace nanscope::gui
