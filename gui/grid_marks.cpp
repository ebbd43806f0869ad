#include "gui/grid_marks.h"

#include <algorithm>

#include "gui/cell_paint.h"
#include "gui/marks.h"

namespace nanscope::gui {
namespace {

constexpr float kLeastMark = 5;  ///< a single NaN among millions of cells is as large

}  // namespace

void draw_marks(const GridScene& scene, const FrontImage& image) {
  if (image.width == 0 || image.height == 0) return;
  const FrontRange& range = image.range;
  const auto column = [&](int x) {
    const std::int64_t at = range.column_begin + (range.column_end - range.column_begin) * x / image.width;
    return static_cast<double>(at);
  };
  const auto row = [&](int y) {
    const std::int64_t at = range.row_begin + (range.row_end - range.row_begin) * y / image.height;
    return static_cast<double>(at);
  };
  clip(scene.cells);
  for (const FrontMark& mark : image.marks) {
    Area area{scene.x(column(mark.x)), scene.y(row(mark.y)), 0, 0};
    area.width = scene.x(column(mark.x + mark.width)) - area.x;
    area.height = scene.y(row(mark.y + 1)) - area.y;
    const float least = scene.px(mark.lone ? kLeastMark : 1);
    const float by_x = std::max(0.0F, least - area.width) / 2;
    const float by_y = std::max(0.0F, least - area.height) / 2;
    area = area.inset(-by_x, -by_y);
    if (mark.lone) {
      draw_sign(scene.context, area, mark.worst);
    } else {
      fill_cell(scene.context.theme, scene.context.fonts, area, mark.worst);
    }
  }
  unclip();
}

}  // namespace nanscope::gui
