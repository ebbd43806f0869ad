#include "instrument/python/extension/grid_drawing.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/text/safe_text.h"
#include "instrument/image/image.h"
#include "instrument/image/pixel_text.h"

namespace nanscope::python {
namespace {

using gui::Cell;
using gui::Color;

constexpr int kScale = 2;  ///< of the words
constexpr int kMargin = 12;
constexpr int kLine = kGlyphHeight * kScale;
constexpr int kGap = 8;        ///< between words and cells
constexpr int kSwatch = 14;    ///< of the legend
constexpr int kLargest = 20;   ///< pixels a cell
constexpr int kLinesFrom = 4;  ///< pixels a cell from which on parts are told apart by lines
constexpr int kMarkBelow = 4;  ///< pixels a cell below which one that is bad alone is drawn larger
constexpr std::size_t kLongestName = 24;
constexpr std::size_t kLongestTitle = 60;

Rgb rgb_of(Color color) { return {color.r, color.g, color.b}; }
std::string name_of(std::string_view text, std::size_t longest) {
  return shortened(one_line(text, Charset::ascii), longest, Charset::ascii);
}

class GridDrawer {
 public:
  GridDrawer(const GridDrawing& drawing, const gui::Theme& theme, int width, int height)
      : drawing_(drawing), theme_(theme), cells_(gui::make_front_image(drawing.grid, all(drawing), width, height)) {
    wide_ = std::clamp(width / std::max(1, cells_.width), 1, kLargest);
    high_ = std::clamp(height / std::max(1, cells_.height), 1, kLargest);
    for (const GridPart& row : drawing.rows) {
      label_width_ = std::max(label_width_, text_width(name_of(row.name, kLongestName), kScale));
    }
  }

  Image draw() {
    lay_out();
    fill_rectangle(image_, 0, 0, image_.width, image_.height, rgb_of(theme_.panel));
    write(kMargin, kMargin, name_of(drawing_.title, kLongestTitle), theme_.text);
    draw_cells();
    draw_marks();
    name_rows();
    name_columns();
    draw_legend();
    return std::move(image_);
  }

 private:
  struct LegendEntry {
    Cell cell;
    std::string word;
  };

  static gui::FrontRange all(const GridDrawing& drawing) { return {0, drawing.grid.columns, 0, drawing.grid.rows}; }

  void write(int x, int y, std::string_view text, Color color) { draw_text(image_, x, y, kScale, rgb_of(color), text); }

  void lay_out() {
    legend_ = legend();
    left_ = kMargin + (label_width_ > 0 ? label_width_ + kGap : 0);
    top_ = kMargin + kLine + 2 * kGap + (drawing_.columns.empty() ? 0 : kLine + kGap);
    const int right = left_ + cells_.width * wide_;
    bottom_ = top_ + cells_.height * high_;
    int legend_right = 0;
    place_legend(right, [&](int x, int, const LegendEntry& entry) {
      legend_right = std::max(legend_right, x + kSwatch + kGap / 2 + text_width(entry.word, kScale));
    });
    const int title_right = kMargin + text_width(name_of(drawing_.title, kLongestTitle), kScale);
    image_.width = std::max({right, legend_right, title_right}) + kMargin;
    image_.height = bottom_ + kGap + legend_lines_ * (kSwatch + kGap) + kMargin - kGap;
    image_.rgb.resize(static_cast<std::size_t>(image_.width) * static_cast<std::size_t>(image_.height) * 3);
  }

  void draw_cells() {
    for (int y = 0; y < cells_.height; ++y) {
      for (int x = 0; x < cells_.width; ++x) {
        const Cell cell = cells_.texels[static_cast<std::size_t>(y) * static_cast<std::size_t>(cells_.width) +
                                        static_cast<std::size_t>(x)];
        fill_rectangle(image_, left_ + x * wide_, top_ + y * high_, wide_, high_, rgb_of(theme_.cell(cell)));
      }
    }
    if (high_ >= kLinesFrom) {
      for (const GridPart& row : drawing_.rows) {
        if (row.begin > 0)
          fill_rectangle(image_, left_, y_of(row.begin), cells_.width * wide_, 1, rgb_of(theme_.panel));
      }
    }
    if (wide_ >= kLinesFrom) {
      for (const GridPart& column : drawing_.columns) {
        if (column.begin > 0) fill_rectangle(image_, x_of(column.begin), top_, 1, bottom_ - top_, rgb_of(theme_.panel));
      }
    }
  }

  /// One bad cell of a few pixels is drawn so large that an eye finds it.
  void draw_marks() {
    if (wide_ >= kMarkBelow && high_ >= kMarkBelow) return;
    for (const gui::FrontMark& mark : cells_.marks) {
      if (!mark.lone) continue;
      const int x = left_ + mark.x * wide_ + (mark.width * wide_ - kMarkBelow) / 2;
      const int y = top_ + mark.y * high_ + (high_ - kMarkBelow) / 2;
      fill_rectangle(image_, x, y, kMarkBelow, kMarkBelow, rgb_of(theme_.cell(mark.worst)));
    }
  }

  int x_of(std::int64_t column) const {
    return left_ + static_cast<int>(column * cells_.width / std::max<std::int64_t>(1, drawing_.grid.columns)) * wide_;
  }
  int y_of(std::int64_t row) const {
    return top_ + static_cast<int>(row * cells_.height / std::max<std::int64_t>(1, drawing_.grid.rows)) * high_;
  }

  /// Beside the first row of each part, where there is room.
  void name_rows() {
    int free = 0;
    for (std::size_t i = 0; i < drawing_.rows.size(); ++i) {
      const int begin = y_of(drawing_.rows[i].begin);
      const int end = i + 1 < drawing_.rows.size() ? y_of(drawing_.rows[i + 1].begin) : bottom_;
      const int y = drawing_.ruled ? begin : begin + std::max(0, (end - begin - kLine) / 2);
      if (y < free || y + kLine > bottom_ + kGap) continue;
      const std::string name = name_of(drawing_.rows[i].name, kLongestName);
      write(left_ - kGap - text_width(name, kScale), y, name, theme_.muted);
      free = y + kLine + 2;
    }
  }

  void name_columns() {
    int free = 0;
    for (const GridPart& column : drawing_.columns) {
      const int x = x_of(column.begin);
      const std::string name = name_of(column.name, kLongestName);
      if (name.empty() || x < free || x + text_width(name, kScale) > image_.width) continue;
      write(x, top_ - kGap - kLine, name, theme_.muted);
      free = x + text_width(name, kScale) + 2 * kGap;
    }
  }

  std::vector<LegendEntry> legend() const {
    std::array<bool, gui::kCells> there{};
    for (const Cell cell : cells_.texels) there[cell < gui::kCells ? cell : gui::kNan] = true;
    std::vector<LegendEntry> entries;
    for (const Cell cell : {gui::kNan, gui::kInf, gui::kClipped, gui::kLowHeadroom}) {
      if (there[cell]) entries.push_back({cell, std::string(gui::cell_name(cell))});
    }
    const auto first = there.begin() + gui::kHealthyFirst;
    const auto last = there.begin() + gui::kHealthyLast + 1;
    if (std::find(first, last, true) != last) {
      constexpr Cell kMiddle = (gui::kHealthyFirst + gui::kHealthyLast) / 2;
      entries.push_back({drawing_.healthy.empty() ? kMiddle : gui::kHealthyLast,
                         drawing_.healthy.empty() ? "healthy" : "healthy, " + drawing_.healthy});
    }
    for (const Cell cell : {gui::kZero, gui::kAbsent}) {
      if (there[cell]) entries.push_back({cell, std::string(gui::cell_name(cell))});
    }
    return entries;
  }

  /// visit(x, line, entry), from left to right and on the next line where one is full.
  template <class Visit>
  void place_legend(int right, const Visit& visit) {
    const int most = std::max(right, kMargin + 480);
    int x = kMargin;
    legend_lines_ = 1;
    for (const LegendEntry& entry : legend_) {
      const int wide = kSwatch + kGap / 2 + text_width(entry.word, kScale);
      if (x > kMargin && x + wide > most) {
        x = kMargin;
        ++legend_lines_;
      }
      visit(x, legend_lines_ - 1, entry);
      x += wide + 2 * kGap;
    }
  }

  void draw_legend() {
    place_legend(left_ + cells_.width * wide_, [&](int x, int line, const LegendEntry& entry) {
      const int y = bottom_ + kGap + kGap / 2 + line * (kSwatch + kGap);
      fill_rectangle(image_, x - 1, y - 1, kSwatch + 2, kSwatch + 2, rgb_of(theme_.line));
      fill_rectangle(image_, x, y, kSwatch, kSwatch, rgb_of(theme_.cell(entry.cell)));
      write(x + kSwatch + kGap / 2, y, entry.word, theme_.text);
    });
  }

  const GridDrawing& drawing_;
  const gui::Theme& theme_;
  gui::FrontImage cells_;
  Image image_;
  std::vector<LegendEntry> legend_;
  int legend_lines_ = 1;
  int label_width_ = 0;
  int wide_ = 1;  ///< pixels a texel
  int high_ = 1;
  int left_ = 0;  ///< where the cells begin
  int top_ = 0;
  int bottom_ = 0;
};

}  // namespace

Result<std::vector<std::byte>> draw_grid(const GridDrawing& drawing, const gui::Theme& theme, int width, int height) {
  constexpr int kMost = 8192;
  if (width < 1 || height < 1 || width > kMost || height > kMost) {
    return fail("a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels: expected 1 to " +
                std::to_string(kMost) + " each");
  }
  if (drawing.grid.columns < 1 || drawing.grid.rows < 1) return fail("there is nothing to draw");
  return encode_png(GridDrawer(drawing, theme, width, height).draw());
}

}  // namespace nanscope::python
