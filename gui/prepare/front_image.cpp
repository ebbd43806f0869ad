#include "gui/prepare/front_image.h"

#include <algorithm>

namespace nanscope::gui {

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

FrontImage make_front_image(const RunMap& map, FrontRange range, int max_width, int max_height) {
  return make_image({map.cells, map.columns, static_cast<std::int64_t>(map.rows.size())}, range, max_width, max_height);
}

}  // namespace nanscope::gui
