#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gui/paint.h"
#include "gui/prepare/front_image.h"
#include "gui/prepare/pattern_image.h"
#include "gui/prepare/viewport.h"
#include "gui/texture.h"
#include "gui/views/view.h"

/// What the views share that show a grid of cells coloured by health.
namespace nanscope::gui {

/// Where a cell is when the viewport fills `cells`.
inline Area cell_area(const Viewport& port, Area cells, std::int64_t column, std::int64_t row,
                      std::int64_t columns = 1) {
  const auto x = [&](std::int64_t at) {
    return cells.x + static_cast<float>((static_cast<double>(at) - port.left()) / port.width()) * cells.width;
  };
  const auto y = [&](std::int64_t at) {
    return cells.y + static_cast<float>((static_cast<double>(at) - port.top()) / port.height()) * cells.height;
  };
  return {x(column), y(row), x(column + columns) - x(column), y(row + 1) - y(row)};
}

/// Where the cells of a grid are on screen.
struct GridScene {
  const ViewContext& context;
  const Viewport& port;
  Area cells;

  float x(double column) const {
    return cells.x + static_cast<float>((column - port.left()) / port.width()) * cells.width;
  }
  float y(double row) const { return cells.y + static_cast<float>((row - port.top()) / port.height()) * cells.height; }
  float cell_width() const { return cells.width / static_cast<float>(port.width()); }
  float cell_height() const { return cells.height / static_cast<float>(port.height()); }
  Area cell(std::int64_t column, std::int64_t row, std::int64_t columns = 1) const {
    return cell_area(port, cells, column, row, columns);
  }
  float px(float pixels) const { return pixels * context.scale; }
};

struct GridHit {
  std::int64_t column = 0;
  std::int64_t row = 0;
  bool clicked = false;
  bool menu = false;  ///< clicked with the right button
};

/// A grid that is zoomed, panned and pointed at.
class CellMap {
 public:
  Viewport port;
  bool bands = false;     ///< dragging with Shift takes a part of the grid
  bool patterned = true;  ///< not where what the cells show would be crossed out

  /// The wheel zooms (with Shift rows alone, with Ctrl columns alone), dragging pans, a double click of
  /// the right button shows all. Answers what is pointed at.
  std::optional<GridHit> input(Area cells);
  /// The cells that were taken by dragging with Shift, once.
  std::optional<FrontRange> take_band() { return std::exchange(taken_, std::nullopt); }
  /// What is being taken, else `chosen`.
  void draw_band(const GridScene& scene, const std::optional<FrontRange>& chosen) const;
  /// Shows `image` from now on; `prepared` holds it and tells whether it is new.
  void upload(const PreparedPtr& prepared, const FrontImage& image, const Theme& theme);
  /// The picture with its patterns, and lines between cells that are large enough.
  void draw(const GridScene& scene);

 private:
  Texture texture_;
  PreparedPtr shown_;
  FrontRange range_;
  std::array<Color, kCells> colors_{};
  FrontImage image_;  ///< what the patterns are drawn from; empty where no cell has one
  CellLook look_;
  Texture patterns_;
  /// What the patterns were last drawn for.
  struct PatternsFor {
    PatternScreen screen;
    double left = 0;
    double top = 0;
    double width = 0;
    double height = 0;
    bool operator==(const PatternsFor&) const = default;
  };
  std::optional<PatternsFor> patterns_for_;

  void draw_patterns(const GridScene& scene);
  bool dragged_ = false;

  /// The range between two cells, both of it, within what is in view.
  FrontRange band_to(const GridHit& hit) const;
  std::optional<GridHit> band_from_;
  std::optional<FrontRange> band_;   ///< while it is dragged
  std::optional<FrontRange> taken_;  ///< when it was let go
};

void clip(Area area);
void unclip();

/// A cell that is selected: framed, at least so large that it is seen, on hair lines through the grid.
void draw_cursor(const GridScene& scene, Area cell, bool along_row, bool along_column);

/// The kinds of health in words, then the ramp, then the rest; what does not fit is left out, and a ramp without words.
struct LegendRamp {
  std::string words;  ///< "healthy, largest |x|"
  std::string from;
  std::string to;
  bool signs = false;  ///< from the largest negative value to the largest positive one
};
struct LegendEntry {
  Cell cell;
  std::string words;
};
void draw_legend(const ViewContext& context, Area row, std::span<const LegendEntry> first, const LegendRamp& ramp,
                 std::span<const LegendEntry> last);

/// At the mouse: a place, what is said of it, and its health beside its colour.
void cell_tooltip(const ViewContext& context, const std::string& place, const std::string& said,
                  const std::string& health, Cell cell);

}  // namespace nanscope::gui
