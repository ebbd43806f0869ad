#include "gui/prepare/front_image.h"

#include <algorithm>

namespace nanscope::gui {
namespace {

constexpr std::size_t kMostMarks = 4096;
constexpr double kNarrow = 6;  ///< pixels: more than the widest line between steps
constexpr double kLow = 3;     ///< and between layers

/// Finds what is bad and thin: cells from `least` to `most`. Texels are `wide` x `high` pixels.
class MarkFinder {
 public:
  MarkFinder(FrontImage& image, double wide, double high, Cell least, Cell most)
      : image_(image),
        narrow_(static_cast<int>(kNarrow / wide)),
        low_(static_cast<int>(kLow / high)),
        least_(least),
        most_(most) {}

  void find() {
    for (int y = 0; y < image_.height; ++y) {
      for (int x = 0; x < image_.width; ++x) {
        if (!bad(x, y)) continue;
        int end = x + 1;
        while (end < image_.width && bad(end, y)) ++end;
        add_run(x, end, y);
        x = end;
      }
    }
  }

 private:
  bool bad(int x, int y) const {
    if (y < 0 || y >= image_.height) return false;
    const auto row = static_cast<std::size_t>(y) * static_cast<std::size_t>(image_.width);
    const Cell cell = image_.texels[row + static_cast<std::size_t>(x)];
    return cell >= least_ && cell <= most_;
  }
  /// The bad texels above and below are few.
  bool low(int x, int y) const {
    int from = y;
    int to = y + 1;
    while (to - from <= low_ && bad(x, from - 1)) --from;
    while (to - from <= low_ && bad(x, to)) ++to;
    return to - from <= low_;
  }
  void add_run(int begin, int end, int y) {
    const bool narrow = end - begin <= narrow_;
    for (int x = begin; x < end;) {
      const bool is_low = low(x, y);
      int next = x + 1;
      while (next < end && low(next, y) == is_low) ++next;
      if (narrow || is_low) add(x, next, y, narrow && is_low);
      x = next;
    }
  }
  void add(int begin, int end, int y, bool lone) {
    if (image_.marks.size() >= kMostMarks) return;
    const auto row = image_.texels.begin() + static_cast<std::ptrdiff_t>(y) * image_.width;
    image_.marks.push_back({begin, y, end - begin, *std::max_element(row + begin, row + end), lone});
  }

  FrontImage& image_;
  int narrow_;  ///< texels
  int low_;
  Cell least_;
  Cell most_;
};

}  // namespace

FrontImage make_image(const CellGrid& grid, FrontRange range, int max_width, int max_height) {
  range.column_begin = std::clamp<std::int64_t>(range.column_begin, 0, grid.columns);
  range.column_end = std::clamp<std::int64_t>(range.column_end, range.column_begin, grid.columns);
  range.row_begin = std::clamp<std::int64_t>(range.row_begin, 0, grid.rows);
  range.row_end = std::clamp<std::int64_t>(range.row_end, range.row_begin, grid.rows);
  const std::int64_t wide = range.column_end - range.column_begin;
  const std::int64_t high = range.row_end - range.row_begin;

  FrontImage image;
  image.range = range;
  image.width = static_cast<int>(std::min<std::int64_t>(wide, std::max(max_width, 1)));
  image.height = static_cast<int>(std::min<std::int64_t>(high, std::max(max_height, 1)));
  image.texels.resize(static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height));
  if (image.texels.empty()) return image;

  std::vector<Cell> band(static_cast<std::size_t>(wide));
  for (int y = 0; y < image.height; ++y) {
    std::fill(band.begin(), band.end(), kAbsent);
    const std::int64_t row_end = range.row_begin + high * (y + 1) / image.height;
    for (std::int64_t r = range.row_begin + high * y / image.height; r < row_end; ++r) {
      const Cell* cells = grid.cells.data() + r * grid.columns + range.column_begin;
      for (std::size_t i = 0; i < band.size(); ++i) band[i] = std::max(band[i], cells[i]);
    }
    Cell* texels = image.texels.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width);
    for (int x = 0; x < image.width; ++x) {
      const auto begin = band.begin() + wide * x / image.width;
      texels[x] = *std::max_element(begin, band.begin() + wide * (x + 1) / image.width);
    }
  }
  return image;
}

FrontImage make_front_image(const CellGrid& grid, FrontRange range, int max_width, int max_height, Cell bad) {
  FrontImage image = make_image(grid, range, max_width, max_height);
  if (!image.texels.empty()) {
    const double wide = std::max(1.0, static_cast<double>(max_width) / image.width);
    const double high = std::max(1.0, static_cast<double>(max_height) / image.height);
    // NaN first: of marks there is a limit.
    MarkFinder(image, wide, high, kInf, kNan).find();
    if (bad < kInf) MarkFinder(image, wide, high, bad, kClipped).find();
  }
  return image;
}

FrontImage make_front_image(const RunMap& map, FrontRange range, int max_width, int max_height) {
  return make_front_image({map.cells, map.columns, static_cast<std::int64_t>(map.rows.size())}, range, max_width,
                          max_height);
}

}  // namespace nanscope::gui
