#include "gui/cell_map.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gui/cell_paint.h"
#include "gui/context_menu.h"

namespace nanscope::gui {
namespace {

constexpr float kGapFrom = 5;  ///< cells of so many pixels are separated by a line

void draw_ramp(const ViewContext& context, Area area, bool signs) {
  for (int i = 0; i < kHealthySteps; ++i) {
    const bool negative = i < kSignedSteps;
    const Cell cell = signs ? signed_cell(negative ? kSignedSteps - 1 - i : i - kSignedSteps, negative)
                            : static_cast<Cell>(kHealthyFirst + i);
    const float from = std::floor(area.x + area.width * static_cast<float>(i) / kHealthySteps);
    const float to = std::floor(area.x + area.width * static_cast<float>(i + 1) / kHealthySteps);
    fill_cell(context.theme, context.fonts, {from, area.y, to - from, area.height}, cell);
  }
}

/// A legend while it is written to the right.
class LegendWriter {
 public:
  LegendWriter(const ViewContext& context, Area row) : context_(context), row_(row), x_(row.x + px(18)) {}

  void entry(const LegendEntry& entry) {
    const float swatch = px(11);
    full_ = full_ || x_ + swatch + px(6) + width_of(entry.words) > row_.right();
    if (full_) return;
    const Area box{x_, row_.y + (row_.height - swatch) / 2, swatch, swatch};
    fill_cell(context_.theme, context_.fonts, box, entry.cell, px(2));
    outline(box, context_.theme.line, 1, px(2));
    x_ += swatch + px(6);
    words(entry.words, 18);
  }

  void ramp(const LegendRamp& ramp) {
    const float width = px(96);
    const float taken = width_of(ramp.words) + width_of(ramp.from) + width_of(ramp.to) + width + px(22);
    full_ = full_ || x_ + taken > row_.right();
    if (full_) return;
    words(ramp.words, 10);
    words(ramp.from, 6);
    draw_ramp(context_, {x_, row_.y + (row_.height - px(11)) / 2, width, px(11)}, ramp.signs);
    x_ += width + px(6);
    words(ramp.to, 18);
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }
  float width_of(std::string_view said) const { return text_size(context_.fonts.small, said).x; }
  void words(std::string_view said, float gap) {
    label(context_.fonts.small, {x_, row_.y, width_of(said) + 1, row_.height}, context_.theme.muted, said);
    x_ += width_of(said) + px(gap);
  }

  const ViewContext& context_;
  Area row_;
  float x_;
  bool full_ = false;
};

/// The row or column at `place`, held to what a double tells apart: where there is no mouse, ImGui says -FLT_MAX, and
/// to cast that is undefined.
std::int64_t cell_at(double place) {
  constexpr double kFarthest = 0x1p53;
  const double cell = std::floor(place);
  return static_cast<std::int64_t>(cell >= -kFarthest ? std::min(cell, kFarthest) : -kFarthest);
}

}  // namespace

void clip(Area area) { ImGui::GetWindowDrawList()->PushClipRect(area.min(), area.max(), true); }
void unclip() { ImGui::GetWindowDrawList()->PopClipRect(); }

std::optional<GridHit> CellMap::input(Area cells) {
  ImGui::SetCursorScreenPos(cells.min());
  ImGui::InvisibleButton("cells", {cells.width, cells.height});
  const ImGuiIO& io = ImGui::GetIO();
  const double at_x = static_cast<double>((io.MousePos.x - cells.x) / cells.width);
  const double at_y = static_cast<double>((io.MousePos.y - cells.y) / cells.height);
  GridHit hit{cell_at(port.left() + at_x * port.width()), cell_at(port.top() + at_y * port.height()), false,
              asked_for_menu()};
  // Whatever is above: the first click opened a menu, the second one closes it.
  if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Right) && cells.holds(io.MousePos)) port.show_all();
  if (bands && io.KeyShift && ImGui::IsItemActivated()) band_from_ = hit;
  if (band_from_ && ImGui::IsItemActive()) {
    if (ImGui::IsMouseDragging(ImGuiMouseButton_Left)) band_ = band_to(hit);
  } else if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left)) {
    port.pan(static_cast<double>(-io.MouseDelta.x / cells.width), static_cast<double>(-io.MouseDelta.y / cells.height));
    dragged_ = true;
  }
  const bool released = ImGui::IsItemDeactivated();
  hit.clicked = released && !dragged_ && !band_;
  if (released) {
    dragged_ = false;
    taken_ = std::exchange(band_, std::nullopt);
    band_from_.reset();
  }
  if (!ImGui::IsItemHovered() || !cells.holds(io.MousePos)) return std::nullopt;
  if (io.MouseWheel != 0) {
    const double factor = std::pow(1.25, static_cast<double>(io.MouseWheel));
    port.zoom(io.KeyShift ? 1 : factor, io.KeyCtrl ? 1 : factor, at_x, at_y);
  }
  return hit;
}

FrontRange CellMap::band_to(const GridHit& hit) const {
  const FrontRange shown = port.range();
  const auto column = [&](std::int64_t at) { return std::clamp(at, shown.column_begin, shown.column_end - 1); };
  const auto row = [&](std::int64_t at) { return std::clamp(at, shown.row_begin, shown.row_end - 1); };
  const auto [left, right] = std::minmax({column(band_from_->column), column(hit.column)});
  const auto [top, bottom] = std::minmax({row(band_from_->row), row(hit.row)});
  return {left, right + 1, top, bottom + 1};
}

void CellMap::draw_band(const GridScene& scene, const std::optional<FrontRange>& chosen) const {
  const std::optional<FrontRange>& band = band_ ? band_ : chosen;
  if (!band) return;
  const Area from = scene.cell(band->column_begin, band->row_begin);
  const Area to = scene.cell(band->column_end - 1, band->row_end - 1);
  const Area area{from.x, from.y, to.right() - from.x, to.bottom() - from.y};
  clip(scene.cells);
  outline(area.inset(-scene.px(1.5F)), scene.context.theme.panel, scene.px(2));
  outline(area, scene.context.theme.text, scene.px(1.5F));
  unclip();
}

void CellMap::upload(const PreparedPtr& prepared, const FrontImage& image, const Theme& theme) {
  CellLook look{theme.patterns, {}};
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    look.inks[cell] = pattern_ink(theme.patterns[cell], theme.cells[cell]).packed();
  }
  if (shown_ == prepared && colors_ == theme.cells && look_ == look) return;
  std::vector<std::uint32_t> pixels(image.texels.size());
  std::transform(image.texels.begin(), image.texels.end(), pixels.begin(),
                 [&theme](Cell cell) { return theme.cell(cell).packed(); });
  if (!pixels.empty()) texture_.upload(pixels, image.width, image.height);
  range_ = image.range;
  shown_ = prepared;
  colors_ = theme.cells;
  look_ = look;
  image_ = has_patterns(image, look) ? image : FrontImage{};
  patterns_for_.reset();
}

void CellMap::draw_patterns(const GridScene& scene) {
  if (image_.texels.empty() || !patterned) return;
  const auto whole = [](float pixels) { return static_cast<int>(std::lround(pixels)); };
  const Area& cells = scene.cells;
  PatternsFor now;
  now.screen = {whole(cells.x), whole(cells.y), whole(cells.width), whole(cells.height),
                pattern_dot(scene.context.scale)};
  now.left = port.left();
  now.top = port.top();
  now.width = port.width();
  now.height = port.height();
  if (now.screen.width < 1 || now.screen.height < 1 || now.screen.width > kTextureLimit ||
      now.screen.height > kTextureLimit) {
    return;
  }
  if (patterns_for_ != now) {
    patterns_for_ = now;
    patterns_.upload(pattern_image(image_, look_, port, now.screen), now.screen.width, now.screen.height);
  }
  const ImVec2 low(static_cast<float>(now.screen.left), static_cast<float>(now.screen.top));
  const ImVec2 high(low.x + static_cast<float>(now.screen.width), low.y + static_cast<float>(now.screen.height));
  ImGui::GetWindowDrawList()->AddImage(patterns_.id(), low, high, {0, 0}, {1, 1}, IM_COL32_WHITE);
}

void CellMap::draw(const GridScene& scene) {
  const Theme& theme = scene.context.theme;
  const ImVec2 low(scene.x(static_cast<double>(range_.column_begin)), scene.y(static_cast<double>(range_.row_begin)));
  const ImVec2 high(scene.x(static_cast<double>(range_.column_end)), scene.y(static_cast<double>(range_.row_end)));
  const Area& cells = scene.cells;
  const bool covered = low.x <= cells.x && low.y <= cells.y && high.x >= cells.right() && high.y >= cells.bottom();
  if (texture_.empty() || !covered) fill(cells, theme.cell(kAbsent));
  if (texture_.empty()) return;
  clip(cells);
  ImGui::GetWindowDrawList()->AddImage(texture_.id(), low, high, {0, 0}, {1, 1}, IM_COL32_WHITE);
  draw_patterns(scene);
  const FrontRange range = port.range();
  const Color thin = theme.panel.alpha(110);
  if (scene.cell_width() >= kGapFrom) {
    for (std::int64_t c = range.column_begin; c <= range.column_end; ++c) {
      fill({std::floor(scene.x(static_cast<double>(c))), scene.cells.y, 1, scene.cells.height}, thin);
    }
  }
  if (scene.cell_height() >= kGapFrom) {
    for (std::int64_t r = range.row_begin; r <= range.row_end; ++r) {
      fill({scene.cells.x, std::floor(scene.y(static_cast<double>(r))), scene.cells.width, 1}, thin);
    }
  }
  unclip();
}

void draw_cursor(const GridScene& scene, Area cell, bool along_row, bool along_column) {
  const Theme& theme = scene.context.theme;
  const float least = scene.px(7);
  if (cell.width < least) cell = {cell.x - (least - cell.width) / 2, cell.y, least, cell.height};
  if (cell.height < least) cell = {cell.x, cell.y - (least - cell.height) / 2, cell.width, least};
  const Color faint = theme.text.alpha(80);
  const float middle_x = std::floor(cell.x + cell.width / 2);
  const float middle_y = std::floor(cell.y + cell.height / 2);
  if (along_row) {
    line({scene.cells.x, middle_y}, {cell.x - 2, middle_y}, faint);
    line({cell.right() + 2, middle_y}, {scene.cells.right(), middle_y}, faint);
  }
  if (along_column) {
    line({middle_x, scene.cells.y}, {middle_x, cell.y - 2}, faint);
    line({middle_x, cell.bottom() + 2}, {middle_x, scene.cells.bottom()}, faint);
  }
  outline(cell.inset(-scene.px(3)), theme.panel, scene.px(2), scene.px(2));
  outline(cell.inset(-scene.px(1.5F)), theme.text, scene.px(2), scene.px(2));
}

void draw_legend(const ViewContext& context, Area row, std::span<const LegendEntry> first, const LegendRamp& ramp,
                 std::span<const LegendEntry> last) {
  LegendWriter writer(context, row);
  for (const LegendEntry& entry : first) writer.entry(entry);
  if (!ramp.words.empty()) writer.ramp(ramp);
  for (const LegendEntry& entry : last) writer.entry(entry);
}

void cell_tooltip(const ViewContext& context, const std::string& place, const std::string& said,
                  const std::string& health, Cell cell) {
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(12 * context.scale, 9 * context.scale));
  ImGui::BeginTooltip();
  ImGui::PushFont(context.fonts.mono);
  ImGui::TextUnformatted(place.c_str());
  ImGui::PopFont();
  ImGui::TextDisabled("%s", said.c_str());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float size = ImGui::GetTextLineHeight();
  fill_cell(context.theme, context.fonts, {at.x, at.y + size * 0.1F, size * 0.8F, size * 0.8F}, cell,
            2 * context.scale);
  ImGui::SetCursorScreenPos({at.x + size * 1.3F, at.y});
  ImGui::TextUnformatted(health.c_str());
  ImGui::EndTooltip();
  ImGui::PopStyleVar();
}

}  // namespace nanscope::gui
