#include "gui/prepare/pattern_image.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {
namespace {

/// The tile of each pattern, once for all pixels.
class PatternTiles {
 public:
  PatternTiles() {
    for (int pattern = 0; pattern < kPatterns; ++pattern) {
      for (int y = 0; y < kPatternPeriod; ++y) {
        for (int x = 0; x < kPatternPeriod; ++x) {
          at(static_cast<Pattern>(pattern), x, y) = inked(static_cast<Pattern>(pattern), x, y);
        }
      }
    }
  }
  const bool* row(Pattern pattern, int y) const {
    return &inked_[(static_cast<std::size_t>(pattern) * kPatternPeriod + static_cast<std::size_t>(y)) * kPatternPeriod];
  }

 private:
  bool& at(Pattern pattern, int x, int y) {
    return inked_[(static_cast<std::size_t>(pattern) * kPatternPeriod + static_cast<std::size_t>(y)) * kPatternPeriod +
                  static_cast<std::size_t>(x)];
  }
  std::array<bool, static_cast<std::size_t>(kPatterns) * kPatternPeriod * kPatternPeriod> inked_{};
};

/// Of each pixel along one direction the texel that covers it, -1: none. `from` and `per_pixel` are in cells.
std::vector<int> texels_along(int pixels, double from, double per_pixel, std::int64_t begin, std::int64_t end,
                              int texels) {
  std::vector<int> along(static_cast<std::size_t>(pixels), -1);
  const auto cells = static_cast<double>(end - begin);
  for (int i = 0; i < pixels && cells > 0; ++i) {
    const double at = (from + (i + 0.5) * per_pixel - static_cast<double>(begin)) / cells * texels;
    if (at >= 0 && at < texels) along[static_cast<std::size_t>(i)] = static_cast<int>(at);
  }
  return along;
}

int tile_part(int pixel, int dot) { return (pixel / dot) % kPatternPeriod; }

}  // namespace

bool has_patterns(const FrontImage& image, const CellLook& look) {
  return std::any_of(image.texels.begin(), image.texels.end(), [&look](Cell cell) {
    return look.patterns[std::min<std::size_t>(cell, kCells - 1)] != Pattern::none;
  });
}

std::vector<std::uint32_t> pattern_image(const FrontImage& image, const CellLook& look, const Viewport& port,
                                         const PatternScreen& screen) {
  static const PatternTiles tiles;
  const auto width = static_cast<std::size_t>(std::max(screen.width, 0));
  const auto height = static_cast<std::size_t>(std::max(screen.height, 0));
  std::vector<std::uint32_t> pixels(width * height);
  if (image.texels.empty() || pixels.empty()) return pixels;
  const FrontRange& range = image.range;
  const std::vector<int> columns = texels_along(screen.width, port.left(), port.width() / screen.width,
                                                range.column_begin, range.column_end, image.width);
  const std::vector<int> rows = texels_along(screen.height, port.top(), port.height() / screen.height, range.row_begin,
                                             range.row_end, image.height);
  std::vector<int> across(width);
  for (std::size_t x = 0; x < width; ++x) across[x] = tile_part(screen.left + static_cast<int>(x), screen.dot);
  for (std::size_t y = 0; y < height; ++y) {
    if (rows[y] < 0) continue;
    const Cell* texels = image.texels.data() + static_cast<std::ptrdiff_t>(rows[y]) * image.width;
    const int down = tile_part(screen.top + static_cast<int>(y), screen.dot);
    std::uint32_t* line = pixels.data() + y * width;
    for (std::size_t x = 0; x < width; ++x) {
      if (columns[x] < 0) continue;
      const std::size_t cell = std::min<std::size_t>(texels[columns[x]], kCells - 1);
      const Pattern pattern = look.patterns[cell];
      if (pattern != Pattern::none && tiles.row(pattern, down)[across[x]]) line[x] = look.inks[cell];
    }
  }
  return pixels;
}

}  // namespace nanscope::gui
