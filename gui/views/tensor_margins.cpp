#include "gui/views/tensor_margins.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/cell_paint.h"
#include "gui/marks.h"
#include "gui/prepare/tensor_statistics.h"
#include "gui/views/tensor_panel.h"

namespace nanscope::gui {
namespace {

constexpr float kLeastShare = 6;        ///< of a margin: what one bad element among thousands takes
constexpr float kLeastBadLine = 3;      ///< a bad row or column among thousands is as wide
constexpr float kLeastProfile = 0.12F;  ///< of a margin: the least magnitude is seen, too
constexpr float kGapBetween = 4;        ///< wider lines are told apart

bool is_bad(const LineHealth& line) { return line.nan + line.inf + line.clipped > 0; }

/// A margin while its lines are drawn: columns above the grid, or rows beside it.
class Margin {
 public:
  Margin(const GridScene& scene, const TensorPicture& picture, Area area, bool upright)
      : scene_(scene),
        area_(area),
        upright_(upright),
        signs_(picture.sheet->signs),
        lines_(upright ? picture.column_bars : picture.row_bars) {
    const FrontRange& range = picture.image.range;
    const std::int64_t begin = upright ? range.column_begin : range.row_begin;
    const std::int64_t end = upright ? range.column_end : range.row_end;
    begin_ = static_cast<double>(begin);
    per_ = static_cast<double>(end - begin) / static_cast<double>(std::max<std::size_t>(lines_.size(), 1));
  }

  void draw() const {
    clip(area_);
    for (std::size_t i = 0; i < lines_.size(); ++i) line(i, 1);
    // Above its neighbours, which are healthy.
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (is_bad(lines_[i])) line(i, scene_.px(kLeastBadLine));
    }
    unclip();
  }

 private:
  float place(double at) const { return std::floor(upright_ ? scene_.x(at) : scene_.y(at)); }

  void line(std::size_t index, float least) const {
    const double at = begin_ + per_ * static_cast<double>(index);
    float from = place(at);
    float thick = place(at + per_) - from;
    if (thick < least) {
      from -= std::floor((least - thick) / 2);
      thick = least;
    }
    if (thick > scene_.px(kGapBetween)) {
      from += 1;
      thick -= 1;
    }
    const LineHealth& line = lines_[index];
    const float length = upright_ ? area_.height : area_.width;
    const std::pair<float, Cell> parts[] = {
        {line.nan, kNan}, {line.inf, kInf}, {line.clipped, kClipped}, {line.low_headroom, kLowHeadroom}};
    float done = 0;
    for (const auto& [share, cell] : parts) {
      if (share <= 0) continue;
      const float wide = std::clamp(std::round(share * length), scene_.px(kLeastShare),
                                    std::max(scene_.px(kLeastShare), length - done));
      fill_cell(scene_.context.theme, scene_.context.fonts, piece(from, thick, done, wide), cell);
      done += wide;
    }
    if (line.largest < kHealthyFirst || done >= length) return;
    const float part = kLeastProfile + (1 - kLeastProfile) * static_cast<float>(ramp_part(line.largest, signs_));
    fill(piece(from, thick, done, (length - done) * part), scene_.context.theme.cell(line.largest).alpha(150));
  }

  Area piece(float from, float thick, float done, float wide) const {
    return upright_ ? Area{from, area_.bottom() - done - wide, thick, wide} : Area{area_.x + done, from, wide, thick};
  }

  const GridScene& scene_;
  Area area_;
  bool upright_;
  bool signs_;
  const std::vector<LineHealth>& lines_;
  double begin_ = 0;
  double per_ = 1;
};

/// The numbers of one whole row or column.
void tell_line(const GridScene& scene, const TensorSheet& sheet, const FrontRange& line) {
  const TensorStatistics counted = tensor_statistics(sheet, line);
  std::vector<std::string> words;
  if (counted.finite > 0) {
    words.push_back(fmt::format("largest |x| {:.6g}, mean {:.6g}, standard deviation {:.6g}", counted.absmax,
                                counted.mean, counted.deviation));
  }
  words.push_back(fmt::format("{} elements, {} NaN, {} Inf, {} clipped, {} zero", counted.elements, counted.nan,
                              counted.positive_inf + counted.negative_inf, counted.clipped, counted.zero));
  tooltip(scene.context, part_words(sheet, line), words);
}

}  // namespace

void draw_grid_margins(const GridScene& scene, const TensorPicture& picture, const GridAreas& areas) {
  Margin(scene, picture, areas.column_bars, true).draw();
  Margin(scene, picture, areas.row_bars, false).draw();
  const TensorSheet& sheet = *picture.sheet;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (!sheet.elements || !ImGui::IsWindowHovered()) return;
  const FrontRange shown = scene.port.range();
  if (areas.column_bars.holds(mouse)) {
    const double at =
        scene.port.left() + static_cast<double>((mouse.x - scene.cells.x) / scene.cells.width) * scene.port.width();
    const auto column = std::clamp(static_cast<std::int64_t>(at), shown.column_begin, shown.column_end - 1);
    tell_line(scene, sheet, {column, column + 1, 0, sheet.rows});
  } else if (areas.row_bars.holds(mouse)) {
    const double at =
        scene.port.top() + static_cast<double>((mouse.y - scene.cells.y) / scene.cells.height) * scene.port.height();
    const auto row = std::clamp(static_cast<std::int64_t>(at), shown.row_begin, shown.row_end - 1);
    tell_line(scene, sheet, {0, sheet.columns, row, row + 1});
  }
}

}  // namespace nanscope::gui
